//! Keyset pagination: a page starts after the last row of the previous page, not at an offset.

use std::fmt::Write as _;
use std::str::FromStr;

use crate::Error;
use crate::query::{Bound, Untyped};
use crate::value::row::Row;
use crate::value::{Value, ValueKind};

/// The order of a paged list: columns that are never NULL and together are unique. The query must return all of them,
/// and an index should start with them.
///
/// The query must have neither `ORDER BY` nor `LIMIT`, and must end with its `WHERE` clause (`WHERE TRUE` if there is
/// no condition). Every page has the same cost, and rows that are inserted or deleted in the meantime do not make other
/// rows appear twice or be skipped.
///
/// ```
/// # use hob_database::{Keyset, ValueKind};
/// const NEWEST_FIRST: Keyset = Keyset::descending(&[("created_at", ValueKind::Int), ("id", ValueKind::Text)]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Keyset {
    columns: &'static [(&'static str, ValueKind)],
    direction: Direction,
}

#[derive(Clone, Copy, Debug)]
enum Direction {
    Ascending,
    Descending,
}

/// Which page to read, and its size.
#[derive(Clone, Debug)]
pub struct PageRequest {
    after: Option<Cursor>,
    size: u16,
}

/// The position after a page. Opaque to clients. It grants no access: a forged cursor is just another position in the
/// same list.
#[derive(Clone, Debug, PartialEq)]
pub struct Cursor(Vec<Value>);

/// One page of a list.
#[derive(Clone, Debug)]
pub struct Page<T> {
    pub rows: Vec<T>,
    /// The cursor of the next page; `None` at the end of the list.
    pub next: Option<Cursor>,
}

impl Keyset {
    pub const fn ascending(columns: &'static [(&'static str, ValueKind)]) -> Self {
        Self { columns, direction: Direction::Ascending }
    }

    pub const fn descending(columns: &'static [(&'static str, ValueKind)]) -> Self {
        Self { columns, direction: Direction::Descending }
    }

    /// The query for one page, plus one row to find out whether there is another page.
    pub(crate) fn query(&self, query: Untyped, request: &PageRequest) -> Result<Untyped, Error> {
        let (than, suffix) = match self.direction {
            Direction::Ascending => (">", ""),
            Direction::Descending => ("<", " DESC"),
        };
        let mut next = query.bound() + 1;
        let mut bound = Vec::new();
        let mut more = String::new();
        let list = |part: &dyn Fn(usize, &str) -> String| {
            let parts = self.columns.iter().enumerate().map(|(n, (column, _))| part(n, column));
            parts.collect::<Vec<_>>().join(", ")
        };
        if let Some(cursor) = &request.after {
            let columns = list(&|_, column| column.to_owned());
            let key = list(&|n, _| format!("${}", next + n));
            let _ = write!(more, "AND ({columns}) {than} ({key}) ");
            bound.extend(self.key(cursor)?);
            next += self.columns.len();
        }
        let order = list(&|_, column| format!("{column}{suffix}"));
        let _ = write!(more, "ORDER BY {order} LIMIT ${next}");
        bound.push((ValueKind::Int, Some(Value::Int(i64::from(request.size) + 1))));
        Ok(query.and(&more, bound))
    }

    /// The cursor's values, if they have the kinds of this list's columns.
    fn key(&self, cursor: &Cursor) -> Result<Vec<Bound>, Error> {
        if cursor.0.len() != self.columns.len() {
            return Err(Error::InvalidCursor);
        }
        let values = self.columns.iter().zip(&cursor.0);
        let bound = values.map(|((_, kind), value)| match value.clone().into_kind(*kind) {
            Ok(value) => Ok((*kind, Some(value))),
            Err(_) => Err(Error::InvalidCursor),
        });
        bound.collect()
    }
}

/// Makes a page from its rows and the first row of the next page.
pub(crate) fn build(mut rows: Vec<Row>, order: &Keyset, request: &PageRequest) -> Result<Page<Row>, Error> {
    let next = match rows.get(request.size()) {
        Some(_) => rows.get(request.size() - 1).map(|last| cursor(last, order)).transpose()?,
        None => None,
    };
    rows.truncate(request.size());
    Ok(Page { rows, next })
}

fn cursor(row: &Row, order: &Keyset) -> Result<Cursor, Error> {
    let key = order.columns.iter().map(|(column, _)| {
        // Columns of a row have no table name.
        let name = column.rsplit('.').next().unwrap_or(column);
        row.get::<Value>(name)
    });
    key.collect::<Result<_, _>>().map(Cursor)
}

impl<T> Page<T> {
    /// Converts the rows.
    pub fn map<U>(self, into: impl FnMut(T) -> U) -> Page<U> {
        Page { rows: self.rows.into_iter().map(into).collect(), next: self.next }
    }
}

impl PageRequest {
    pub const DEFAULT_SIZE: u16 = 50;
    pub const MAX_SIZE: u16 = 500;

    /// The first page. The size is limited to [`PageRequest::MAX_SIZE`].
    pub fn first(size: u16) -> Self {
        Self { after: None, size: size.clamp(1, Self::MAX_SIZE) }
    }

    /// Parses a cursor and a size from a client.
    pub fn parse(after: Option<&str>, size: Option<u16>) -> Result<Self, Error> {
        Ok(Self {
            after: after.map(str::parse).transpose()?,
            ..Self::first(size.unwrap_or(Self::DEFAULT_SIZE))
        })
    }

    /// The page that starts at `cursor`.
    #[must_use]
    pub fn after(mut self, cursor: Cursor) -> Self {
        self.after = Some(cursor);
        self
    }

    pub(crate) fn size(&self) -> usize {
        self.size.into()
    }
}

impl Default for PageRequest {
    fn default() -> Self {
        Self::first(Self::DEFAULT_SIZE)
    }
}

/// Larger than the keys of any table.
const MAX_CURSOR_BYTES: usize = 2_048;

/// Uses letters, digits, `-`, `.` and `_` only, which need no escaping in a URL: per value one letter for its kind,
/// then the number, or the bytes in hexadecimal.
impl std::fmt::Display for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, value) in self.0.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { "_" })?;
            match value {
                Value::Int(n) => write!(f, "i{n}")?,
                Value::Real(x) => write!(f, "r{:x}", x.to_bits())?,
                Value::Bool(flag) => write!(f, "b{}", u8::from(*flag))?,
                Value::Text(text) => write!(f, "t{}", Hex(text.as_bytes()))?,
                Value::Bytes(bytes) => write!(f, "y{}", Hex(bytes))?,
            }
        }
        Ok(())
    }
}

impl FromStr for Cursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text.len() > MAX_CURSOR_BYTES {
            return Err(Error::InvalidCursor);
        }
        let values: Option<Vec<Value>> = text.split('_').map(parse_value).collect();
        values.map(Self).ok_or(Error::InvalidCursor)
    }
}

fn parse_value(text: &str) -> Option<Value> {
    let kind = text.chars().next()?;
    let rest = text.get(1..)?;
    let value = match kind {
        'i' => Value::Int(rest.parse().ok()?),
        'r' => Value::Real(f64::from_bits(u64::from_str_radix(rest, 16).ok()?)),
        'b' => Value::Bool(rest == "1"),
        't' => Value::Text(String::from_utf8(unhex(rest)?).ok()?),
        'y' => Value::Bytes(unhex(rest)?),
        _ => return None,
    };
    let storable = match &value {
        Value::Text(text) => !text.contains('\0'),
        Value::Real(x) => !x.is_nan(),
        _ => true,
    };
    storable.then_some(value)
}

struct Hex<'a>(&'a [u8]);

impl std::fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|digit| digit.to_digit(16)?.try_into().ok()).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            any::<i64>().prop_map(Value::Int),
            any::<f64>().prop_filter("storable", |x| !x.is_nan()).prop_map(Value::Real),
            any::<bool>().prop_map(Value::Bool),
            "[^\0]{0,40}".prop_map(Value::Text),
            prop::collection::vec(any::<u8>(), 0..40).prop_map(Value::Bytes),
        ]
    }

    proptest! {
        #[test]
        fn cursor_round_trips_through_a_url(key in prop::collection::vec(value(), 1..5)) {
            let cursor = Cursor(key);
            let text = cursor.to_string();
            prop_assert!(text.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c)));
            prop_assert_eq!(text.parse::<Cursor>().unwrap(), cursor);
        }

        #[test]
        fn parsing_any_text_does_not_panic(text in "[itryb_0-9a-f+é-]{0,60}") {
            let _ = text.parse::<Cursor>();
        }
    }

    #[test]
    fn invalid_cursor_is_refused() {
        for text in ["", "i", "i1_", "t0", "t00", "tff", "x1", "rzz", "é1", "i99999999999999999999", "t+a"] {
            assert!(text.parse::<Cursor>().is_err(), "{text} was accepted");
        }
        assert!("t61".repeat(2_000).parse::<Cursor>().is_err());
    }
}
