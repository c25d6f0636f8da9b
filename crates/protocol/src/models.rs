//! `GET /v1/models`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The models served here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ModelList {
    /// `list`.
    pub object: String,
    /// One card a name.
    pub data: Vec<ModelCard>,
}

/// One name that requests can ask for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ModelCard {
    /// The name.
    pub id: String,
    /// `model`.
    pub object: String,
    /// Unix time the server started.
    pub created: u64,
    /// `updraft`.
    pub owned_by: String,
    /// Where the weights come from.
    pub root: String,
    /// The model an adapter belongs to; null for models.
    pub parent: Option<String>,
    /// Prompt and answer together, in tokens.
    pub max_model_len: u32,
    /// Always empty: a key opens every model.
    #[schema(value_type = Vec<Object>)]
    pub permission: Vec<serde_json::Value>,
}

impl ModelCard {
    /// A card for one name.
    #[must_use]
    pub fn new(id: &str, root: &str, created: u64, max_model_len: u32) -> Self {
        Self {
            id: id.to_owned(),
            object: "model".to_owned(),
            created,
            owned_by: "updraft".to_owned(),
            root: root.to_owned(),
            parent: None,
            max_model_len,
            permission: Vec::new(),
        }
    }
}
