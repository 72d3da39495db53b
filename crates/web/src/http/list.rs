//! Lists and times of the API.

use std::borrow::Cow;

use hob_database::{Page, PageRequest, UnixMs};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, SchemaFormat, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{IntoParams, PartialSchema, ToSchema};

use crate::Problem;

/// The page of a list.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Paging {
    /// The cursor of the page: `next` of the previous page. Default: the first page.
    #[param(max_length = 2048)]
    pub after: Option<String>,
    /// The number of items on a page. Default: 50.
    #[param(minimum = 1, maximum = 500)]
    pub limit: Option<u16>,
}

/// One page of a list.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct List<T> {
    pub items: Vec<T>,
    /// The cursor of the next page; null on the last page.
    pub next: Option<String>,
}

/// A time, as RFC 3339 in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub UnixMs);

/// The schema of a text of bounded length, for texts in lists and maps: `#[schema(value_type = Vec<Text128>)]`.
#[derive(Clone, Copy, Debug)]
pub struct Text<const MAX: usize>;

pub type Text64 = Text<64>;
pub type Text128 = Text<128>;
pub type Text512 = Text<512>;
pub type Text1000 = Text<1000>;
pub type Text4096 = Text<4096>;
pub type Text524288 = Text<524_288>;

impl<const MAX: usize> PartialSchema for Text<MAX> {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new().schema_type(Type::String).max_length(Some(MAX)).into()
    }
}

impl<const MAX: usize> ToSchema for Text<MAX> {
    fn name() -> Cow<'static, str> {
        format!("Text{MAX}").into()
    }
}

impl Paging {
    pub fn request(&self) -> Result<PageRequest, Problem> {
        if self.limit.is_some_and(|limit| !(1..=PageRequest::MAX_SIZE).contains(&limit)) {
            return Err(Problem::invalid(
                "limit",
                format!("must be between 1 and {}", PageRequest::MAX_SIZE),
            ));
        }
        Ok(PageRequest::parse(self.after.as_deref(), self.limit)?)
    }
}

impl<T> From<Page<T>> for List<T> {
    fn from(page: Page<T>) -> Self {
        Self { items: page.rows, next: page.next.map(|cursor| cursor.to_string()) }
    }
}

impl From<UnixMs> for Time {
    fn from(time: UnixMs) -> Self {
        Self(time)
    }
}

impl std::fmt::Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Times outside of the calendar are clamped.
        let edge = if self.0.0 < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
        let time = jiff::Timestamp::from_millisecond(self.0.0).unwrap_or(edge);
        write!(f, "{time:.3}")
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        let time: jiff::Timestamp = text.parse().map_err(serde::de::Error::custom)?;
        Ok(Self(UnixMs(time.as_millisecond())))
    }
}

impl PartialSchema for Time {
    fn schema() -> RefOr<Schema> {
        let text = ObjectBuilder::new().schema_type(Type::String);
        text.format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime))).build().into()
    }
}

impl ToSchema for Time {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_milliseconds() {
        assert_eq!(Time(UnixMs(1_700_000_000_120)).to_string(), "2023-11-14T22:13:20.120Z");
        assert_eq!(Time(UnixMs(0)).to_string(), "1970-01-01T00:00:00.000Z");
        assert!(!Time(UnixMs(i64::MAX)).to_string().is_empty());
    }

    #[test]
    fn time_is_read_as_it_is_written() {
        let time = Time(UnixMs(1_700_000_000_120));
        assert_eq!(serde_json::from_str::<Time>(&serde_json::to_string(&time).unwrap()).unwrap(), time);
        assert!(serde_json::from_str::<Time>("\"yesterday\"").is_err());
    }
}
