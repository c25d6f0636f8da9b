//! What the tensors of a dense decoder are called in each kind of checkpoint.

use crate::tensors::TensorStore;

/// Prefixes of the language model within Hugging Face folders: plain, bare bodies as embedding models are published,
/// and inside vision-language models in their older and newer layout.
const PREFIXES: [&str; 5] =
    ["model.", "", "language_model.model.", "model.language_model.", "language_model."];
/// Names of the output matrix within Hugging Face folders.
const OUTPUTS: [&str; 2] = ["lm_head.weight", "language_model.lm_head.weight"];
const HF_EMBEDDING: &str = "embed_tokens.weight";

/// A naming scheme.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    /// Hugging Face.
    HuggingFace {
        /// Stands before every name of the decoder.
        prefix: &'static str,
        /// Name of the output matrix.
        output: &'static str,
    },
    /// GGUF.
    Gguf,
}

/// A part of a decoder layer that has weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Norm before attention.
    AttentionNorm,
    Query,
    Key,
    Value,
    QueryNorm,
    KeyNorm,
    AttentionOutput,
    /// Norm of the attention's result, before it is added.
    AttentionResultNorm,
    /// Norm before the feed-forward part, in families with one norm for each part.
    FeedForwardNorm,
    /// The same in families that also have norms of results; another name in Hugging Face folders.
    FeedForwardInputNorm,
    Gate,
    Up,
    Down,
    /// Norm of the feed-forward part's result, before it is added.
    FeedForwardResultNorm,
}

/// Which tensor of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Weight,
    Bias,
}

impl Naming {
    /// The scheme of a Hugging Face folder, found by where its embedding is.
    pub(crate) fn of_folder(store: &TensorStore) -> Self {
        let prefix = PREFIXES
            .into_iter()
            .find(|prefix| store.contains(&format!("{prefix}{HF_EMBEDDING}")))
            .unwrap_or(PREFIXES[0]);
        let output = OUTPUTS.into_iter().find(|output| store.contains(output)).unwrap_or(OUTPUTS[0]);
        Self::HuggingFace { prefix, output }
    }

    /// The embedding.
    pub(crate) fn embedding(&self) -> String {
        match self {
            Self::HuggingFace { prefix, .. } => format!("{prefix}{HF_EMBEDDING}"),
            Self::Gguf => "token_embd.weight".to_owned(),
        }
    }

    /// The norm before the output matrix.
    pub(crate) fn final_norm(&self) -> String {
        match self {
            Self::HuggingFace { prefix, .. } => format!("{prefix}norm.weight"),
            Self::Gguf => "output_norm.weight".to_owned(),
        }
    }

    /// The output matrix, where it is not the embedding.
    pub(crate) fn output(&self) -> String {
        match self {
            Self::HuggingFace { output, .. } => (*output).to_owned(),
            Self::Gguf => "output.weight".to_owned(),
        }
    }

    /// What the names of all layer tensors begin with.
    pub(crate) fn layers_prefix(&self) -> String {
        match self {
            Self::HuggingFace { prefix, .. } => format!("{prefix}layers."),
            Self::Gguf => "blk.".to_owned(),
        }
    }

    /// A tensor of a layer.
    pub(crate) fn layer(&self, layer: u32, part: Part, kind: Kind) -> String {
        let name = match self {
            Self::HuggingFace { .. } => part.hugging_face(),
            Self::Gguf => part.gguf(),
        };
        let kind = match kind {
            Kind::Weight => "weight",
            Kind::Bias => "bias",
        };
        format!("{}{layer}.{name}.{kind}", self.layers_prefix())
    }
}

impl Part {
    fn hugging_face(self) -> &'static str {
        match self {
            Self::AttentionNorm => "input_layernorm",
            Self::Query => "self_attn.q_proj",
            Self::Key => "self_attn.k_proj",
            Self::Value => "self_attn.v_proj",
            Self::QueryNorm => "self_attn.q_norm",
            Self::KeyNorm => "self_attn.k_norm",
            Self::AttentionOutput => "self_attn.o_proj",
            // The same name for two things: families without norms of results call the next norm "post attention".
            Self::AttentionResultNorm | Self::FeedForwardNorm => "post_attention_layernorm",
            Self::FeedForwardInputNorm => "pre_feedforward_layernorm",
            Self::Gate => "mlp.gate_proj",
            Self::Up => "mlp.up_proj",
            Self::Down => "mlp.down_proj",
            Self::FeedForwardResultNorm => "post_feedforward_layernorm",
        }
    }

    fn gguf(self) -> &'static str {
        match self {
            Self::AttentionNorm => "attn_norm",
            Self::Query => "attn_q",
            Self::Key => "attn_k",
            Self::Value => "attn_v",
            Self::QueryNorm => "attn_q_norm",
            Self::KeyNorm => "attn_k_norm",
            Self::AttentionOutput => "attn_output",
            Self::AttentionResultNorm => "post_attention_norm",
            Self::FeedForwardNorm | Self::FeedForwardInputNorm => "ffn_norm",
            Self::Gate => "ffn_gate",
            Self::Up => "ffn_up",
            Self::Down => "ffn_down",
            Self::FeedForwardResultNorm => "post_ffw_norm",
        }
    }
}
