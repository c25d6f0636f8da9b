//! Reading a request field by field.
//!
//! Each field is taken out of the object under its name, so an error can name it, and what is left at the
//! end is what nobody knew. `null` means absent everywhere.

use serde_json::Value;

use crate::error::RequestError;
use crate::json::describe;
use crate::{JsonObject, unsupported};

/// The fields of one request that have not been read yet.
pub(crate) struct Fields {
    left: JsonObject,
    asked: Vec<&'static str>,
}

impl Fields {
    pub(crate) fn new(mut object: JsonObject) -> Self {
        object.retain(|_, value| !value.is_null());
        Self { left: object, asked: Vec::new() }
    }

    /// Takes the field `name` if it is there.
    pub(crate) fn take<T: FieldValue>(&mut self, name: &'static str) -> Result<Option<T>, RequestError> {
        self.asked.push(name);
        let Some(value) = self.left.shift_remove(name) else {
            return Ok(None);
        };
        match T::from_value(value) {
            Ok(value) => Ok(Some(value)),
            Err(found) => {
                Err(RequestError::invalid(name, format!("{name} must be {}, not {found}", T::WANTED)))
            }
        }
    }

    /// Refuses what nobody took and what is not known to be without effect.
    pub(crate) fn finish(self) -> Result<(), RequestError> {
        match self.left.keys().find(|name| !unsupported::is_harmless(name)) {
            Some(name) => Err(unsupported::unknown(name, &self.asked)),
            None => Ok(()),
        }
    }
}

/// A type that a field can have.
pub(crate) trait FieldValue: Sized {
    /// The type in words, after "must be".
    const WANTED: &'static str;
    /// Converts, or says in words what was found instead.
    fn from_value(value: Value) -> Result<Self, String>;
}

impl FieldValue for i64 {
    const WANTED: &'static str = "a whole number";
    fn from_value(value: Value) -> Result<Self, String> {
        integer(&value).ok_or_else(|| describe(&value))
    }
}

impl FieldValue for f64 {
    const WANTED: &'static str = "a number";
    fn from_value(value: Value) -> Result<Self, String> {
        value.as_f64().filter(|number| number.is_finite()).ok_or_else(|| describe(&value))
    }
}

impl FieldValue for bool {
    const WANTED: &'static str = "true or false";
    fn from_value(value: Value) -> Result<Self, String> {
        value.as_bool().ok_or_else(|| describe(&value))
    }
}

impl FieldValue for String {
    const WANTED: &'static str = "a string";
    fn from_value(value: Value) -> Result<Self, String> {
        match value {
            Value::String(text) => Ok(text),
            other => Err(describe(&other)),
        }
    }
}

impl FieldValue for Value {
    const WANTED: &'static str = "a value";
    fn from_value(value: Value) -> Result<Self, String> {
        Ok(value)
    }
}

impl FieldValue for JsonObject {
    const WANTED: &'static str = "an object";
    fn from_value(value: Value) -> Result<Self, String> {
        match value {
            Value::Object(object) => Ok(object),
            other => Err(describe(&other)),
        }
    }
}

impl FieldValue for Vec<Value> {
    const WANTED: &'static str = "a list";
    fn from_value(value: Value) -> Result<Self, String> {
        match value {
            Value::Array(items) => Ok(items),
            other => Err(describe(&other)),
        }
    }
}

impl FieldValue for Vec<i64> {
    const WANTED: &'static str = "a list of whole numbers";
    fn from_value(value: Value) -> Result<Self, String> {
        items(value, |item| integer(&item).ok_or(item))
    }
}

impl FieldValue for Vec<String> {
    const WANTED: &'static str = "a list of strings";
    fn from_value(value: Value) -> Result<Self, String> {
        items(value, |item| match item {
            Value::String(text) => Ok(text),
            other => Err(other),
        })
    }
}

fn items<T>(value: Value, convert: impl Fn(Value) -> Result<T, Value>) -> Result<Vec<T>, String> {
    let Value::Array(items) = value else {
        return Err(describe(&value));
    };
    items
        .into_iter()
        .map(|item| convert(item).map_err(|item| format!("a list with {}", describe(&item))))
        .collect()
}

/// A whole number, also when written with an empty fraction (`10.0`).
pub(crate) fn integer(value: &Value) -> Option<i64> {
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    value.as_i64().or_else(|| {
        let number = value.as_f64()?;
        let whole = !value.is_u64() && number.fract() == 0.0 && number.abs() <= EXACT_MAX;
        whole.then_some(number as i64)
    })
}

/// Declares a struct of optional request fields, with its reader.
macro_rules! request_fields {
    ($(#[$about:meta])* $name:ident { $($(#[$field_about:meta])* $field:ident: $kind:ty,)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, utoipa::ToSchema)]
        pub struct $name {
            $($(#[$field_about])*
            #[serde(skip_serializing_if = "Option::is_none")]
            pub $field: Option<$kind>,)*
        }

        impl $name {
            pub(crate) fn read(
                fields: &mut $crate::fields::Fields,
            ) -> Result<Self, $crate::error::RequestError> {
                Ok(Self { $($field: fields.take(stringify!($field))?,)* })
            }
        }
    };
}
pub(crate) use request_fields;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(value: Value) -> Fields {
        let Value::Object(object) = value else { panic!("not an object") };
        Fields::new(object)
    }

    #[test]
    fn a_value_of_the_wrong_type_is_named() {
        let message = |value: Value| fields(json!({"n": value})).take::<i64>("n").unwrap_err().message;
        assert_eq!(message(json!("ten")), "n must be a whole number, not \"ten\"");
        assert_eq!(message(json!(2.5)), "n must be a whole number, not 2.5");
        assert_eq!(message(json!(true)), "n must be a whole number, not true");
        assert_eq!(message(json!(u64::MAX)), "n must be a whole number, not 18446744073709551615");
        assert_eq!(message(json!([1])), "n must be a whole number, not a list");
        let error = fields(json!({"ids": [1, "a"]})).take::<Vec<i64>>("ids").unwrap_err();
        assert_eq!(error.message, "ids must be a list of whole numbers, not a list with \"a\"");
    }

    #[test]
    fn null_is_absent_and_an_empty_fraction_is_whole() {
        assert_eq!(fields(json!({"n": null})).take::<i64>("n"), Ok(None));
        assert_eq!(fields(json!({"n": 10.0})).take::<i64>("n"), Ok(Some(10)));
        assert_eq!(fields(json!({"n": i64::MIN})).take::<i64>("n"), Ok(Some(i64::MIN)));
        assert!(fields(json!({"n": 1e300})).take::<i64>("n").is_err());
    }
}
