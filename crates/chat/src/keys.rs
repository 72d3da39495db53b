//! The keys of the chat, from its schema file, and its ids as columns of the database.

use std::str::FromStr;

use hob_database::column;
use hob_schema::IdError;

hob_schema_macros::keys!("schemas/chat.toml");

macro_rules! id {
    ($($id:ident)*) => {$(
        impl FromStr for $id {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl serde::Serialize for $id {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $id {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                Self::new(text).map_err(serde::de::Error::custom)
            }
        }
    )*};
}

id! { UserId SocketId ConversationId Incarnation NamedChannel }
column!(UserId as text);
column!(ConversationId as text);
