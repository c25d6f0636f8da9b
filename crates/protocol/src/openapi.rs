//! The description of the API that tools read, built from the route table and the types themselves.

use utoipa::ToSchema;
use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::path::{HttpMethod, OperationBuilder, Parameter, ParameterBuilder, ParameterIn, Paths};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{ComponentsBuilder, Object, Ref, Schema, Type};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{InfoBuilder, OpenApi, OpenApiBuilder, RefOr, Required, Response, ResponseBuilder};

use crate::chat::ChatRequest;
use crate::chat::response::{ChatChunk, ChatResponse};
use crate::completion::CompletionRequest;
use crate::completion::response::{CompletionChunk, CompletionResponse};
use crate::error::ErrorBody;
use crate::models::{ModelCard, ModelList};
use crate::routes::{ROUTES, Route};
use crate::tokenize::{DetokenizeRequest, DetokenizeResponse, TokenizeRequest, TokenizeResponse};

const SECURITY: &str = "api_key";

/// The whole document.
#[must_use]
pub fn openapi(version: &str) -> OpenApi {
    let mut schemas: Vec<(String, RefOr<Schema>)> = Vec::new();
    add::<ChatRequest>(&mut schemas);
    add::<ChatResponse>(&mut schemas);
    add::<ChatChunk>(&mut schemas);
    add::<CompletionRequest>(&mut schemas);
    add::<CompletionResponse>(&mut schemas);
    add::<CompletionChunk>(&mut schemas);
    add::<ModelList>(&mut schemas);
    add::<ModelCard>(&mut schemas);
    add::<TokenizeRequest>(&mut schemas);
    add::<TokenizeResponse>(&mut schemas);
    add::<DetokenizeRequest>(&mut schemas);
    add::<DetokenizeResponse>(&mut schemas);
    add::<ErrorBody>(&mut schemas);
    let components = ComponentsBuilder::new()
        .schemas_from_iter(schemas)
        .security_scheme(SECURITY, SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)))
        .build();
    let info = InfoBuilder::new()
        .title("Updraft")
        .description(Some("OpenAI-compatible inference server"))
        .version(version)
        .build();
    OpenApiBuilder::new().info(info).paths(paths()).components(Some(components)).build()
}

fn add<T: ToSchema>(schemas: &mut Vec<(String, RefOr<Schema>)>) {
    schemas.push((T::name().into_owned(), T::schema()));
    T::schemas(schemas);
}

fn paths() -> Paths {
    let mut paths = Paths::new();
    for route in ROUTES {
        let method = if route.method == "POST" { HttpMethod::Post } else { HttpMethod::Get };
        paths.add_path_operation(route.path, vec![method], operation(route).build());
    }
    paths
}

fn operation(route: &Route) -> OperationBuilder {
    let (request, answer, chunk) = bodies(route);
    let mut success = ResponseBuilder::new().description("Success");
    if let Some(answer) = answer {
        success = success.content("application/json", content(answer));
    }
    if let Some(chunk) = chunk {
        success = success.content("text/event-stream", content(chunk));
    }
    let mut operation = OperationBuilder::new().summary(Some(route.summary)).response("200", success.build());
    if let Some(request) = request {
        let body = RequestBodyBuilder::new()
            .content("application/json", content(request))
            .required(Some(Required::True))
            .build();
        operation =
            operation.request_body(Some(body)).response("400", failure("The request cannot be served"));
    }
    if route.path.contains("{model}") {
        operation = operation.parameter(model_parameter());
    }
    if !route.open {
        let none: [&str; 0] = [];
        operation = operation
            .security(SecurityRequirement::new(SECURITY, none))
            .response("401", failure("The API key is missing or wrong"));
    }
    operation
}

/// Schemas of request, answer and stream chunk.
fn bodies(route: &Route) -> (Option<String>, Option<String>, Option<String>) {
    fn name<T: ToSchema>() -> String {
        T::name().into_owned()
    }
    let (request, answer, chunk) = match route.path {
        "/v1/chat/completions" => {
            (Some(name::<ChatRequest>()), name::<ChatResponse>(), Some(name::<ChatChunk>()))
        }
        "/v1/completions" => {
            (Some(name::<CompletionRequest>()), name::<CompletionResponse>(), Some(name::<CompletionChunk>()))
        }
        "/v1/models" => (None, name::<ModelList>(), None),
        "/v1/models/{model}" => (None, name::<ModelCard>(), None),
        "/tokenize" => (Some(name::<TokenizeRequest>()), name::<TokenizeResponse>(), None),
        "/detokenize" => (Some(name::<DetokenizeRequest>()), name::<DetokenizeResponse>(), None),
        _ => return (None, None, None),
    };
    (request, Some(answer), chunk)
}

fn content(schema: String) -> utoipa::openapi::Content {
    ContentBuilder::new().schema(Some(Ref::from_schema_name(schema))).build()
}

fn failure(description: &str) -> Response {
    ResponseBuilder::new()
        .description(description)
        .content("application/json", content(ErrorBody::name().into_owned()))
        .build()
}

fn model_parameter() -> Parameter {
    ParameterBuilder::new()
        .name("model")
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .schema(Some(Object::with_type(Type::String)))
        .build()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                if let Some(target) = fields.get("$ref").and_then(Value::as_str) {
                    found.insert(target.to_owned());
                }
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn every_route_is_described_and_every_reference_leads_somewhere() {
        let document = serde_json::to_value(openapi("1.2.3")).unwrap();
        assert_eq!(document["info"]["version"], "1.2.3");
        for route in ROUTES {
            let operation = &document["paths"][route.path][route.method.to_lowercase()];
            assert_eq!(operation["summary"], route.summary, "{route:?}");
        }
        let mut targets = BTreeSet::new();
        references(&document, &mut targets);
        assert!(targets.len() > 10);
        for target in targets {
            let pointer = target.trim_start_matches('#');
            assert!(document.pointer(pointer).is_some(), "{target} leads nowhere");
        }
    }

    #[test]
    fn request_fields_are_described() {
        let document = serde_json::to_value(openapi("0")).unwrap();
        let text = document["components"]["schemas"].to_string();
        for field in ["messages", "top_logprobs", "temperature", "cache_salt", "echo"] {
            assert!(text.contains(&format!("\"{field}\":")), "{field}");
        }
    }
}
