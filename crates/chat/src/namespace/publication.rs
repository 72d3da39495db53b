//! Publishing to channels of namespaces, from clients and from back ends.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::value::RawValue;

use super::{Namespace, NamespaceHub};
use crate::Error;
use crate::keys::{IdempotencyKey, NamedChannel};
use crate::session::protocol::{ClientInfo, one_line};
use crate::store::history::Position;

/// The largest data of a publication.
pub(crate) const MAX_DATA_BYTES: usize = 64 * 1024;
/// The most bytes of all tags of a publication.
const MAX_TAG_BYTES: usize = 4 * 1024;

/// What is published.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Payload<'a> {
    pub(crate) data: &'a RawValue,
    /// The client that publishes.
    pub(crate) info: Option<&'a ClientInfo>,
    pub(crate) tags: Option<&'a BTreeMap<String, String>>,
}

/// Why nothing was published.
#[derive(Debug)]
pub(crate) enum PublishFailure {
    TooLarge { what: &'static str, max: usize },
    Failed(Error),
}

impl From<Error> for PublishFailure {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl NamespaceHub {
    /// Publishes to the subscribers of a channel on all nodes. Returns the position in the history, if the namespace has one
    /// and `skip_history` is not set.
    pub(crate) async fn publish(
        &self,
        channel: &NamedChannel,
        namespace: &Namespace,
        payload: Payload<'_>,
        skip_history: bool,
        once: Option<&IdempotencyKey>,
    ) -> Result<Option<Position>, PublishFailure> {
        let fields = payload.fields()?;
        let retention = namespace.retention().filter(|_| !skip_history);
        Ok(self.history.publish(channel, retention, &fields, once).await?)
    }
}

impl Payload<'_> {
    /// The fields as the inner part of a JSON object, with its closing brace.
    fn fields(&self) -> Result<String, PublishFailure> {
        let data = one_line(self.data.get());
        if data.len() > MAX_DATA_BYTES {
            return Err(PublishFailure::TooLarge { what: "data", max: MAX_DATA_BYTES });
        }
        let mut fields = String::with_capacity(data.len() + 96);
        let _ = write!(fields, r#""data":{data}"#);
        if let Some(info) = self.info {
            let _ = write!(fields, r#","info":{}"#, serde_json::to_string(info).map_err(Error::from)?);
        }
        if let Some(tags) = self.tags.filter(|tags| !tags.is_empty()) {
            let tags = serde_json::to_string(tags).map_err(Error::from)?;
            if tags.len() > MAX_TAG_BYTES {
                return Err(PublishFailure::TooLarge { what: "tags", max: MAX_TAG_BYTES });
            }
            let _ = write!(fields, r#","tags":{tags}"#);
        }
        fields.push('}');
        Ok(fields)
    }
}
