//! A short list in one column, as JSON. An empty list is an empty text.

use hob_database::{Bind, Column, Error, Value, ValueKind};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A list that is stored in one column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JsonList<T>(pub Vec<T>);

impl<T> JsonList<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T> Default for JsonList<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Serialize> Bind for JsonList<T> {
    const KIND: ValueKind = ValueKind::Text;

    fn store(self) -> Result<Option<Value>, Error> {
        if self.0.is_empty() {
            return String::new().store();
        }
        let json = serde_json::to_string(&self.0);
        json.map_err(|error| Error::InvalidValue { reason: error.to_string() })?.store()
    }
}

impl<T: DeserializeOwned> Column for JsonList<T> {
    const EXPECTED: &'static str = "a list in JSON";

    fn load(value: Option<Value>) -> Result<Self, Option<Value>> {
        match &value {
            Some(Value::Text(text)) if text.is_empty() => Ok(Self::default()),
            Some(Value::Text(text)) => serde_json::from_str(text).map(Self).map_err(|_| value),
            _ => Err(value),
        }
    }
}
