//! The values that both databases can store, and the Rust types that convert to them.

pub(crate) mod row;
pub(crate) mod time;

use crate::Error;

/// A value in a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Int(i64),
    Real(f64),
    Bool(bool),
    Text(String),
    Bytes(Vec<u8>),
}

/// The kind of a value. NULL has a kind too, because PostgreSQL needs its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    Int,
    Real,
    Bool,
    Text,
    Bytes,
}

/// A type that can be bound to a placeholder.
pub trait Bind {
    const KIND: ValueKind;

    /// The value to store; `None` is NULL.
    fn store(self) -> Result<Option<Value>, Error>;
}

/// A type that can be read from a column.
pub trait Column: Sized {
    /// The name of the type in error messages.
    const EXPECTED: &'static str;

    /// Converts a stored value; `None` is NULL. Returns the value as the error if it has another type.
    fn load(value: Option<Value>) -> Result<Self, Option<Value>>;
}

impl Value {
    pub(crate) fn kind(&self) -> ValueKind {
        match self {
            Value::Int(_) => ValueKind::Int,
            Value::Real(_) => ValueKind::Real,
            Value::Bool(_) => ValueKind::Bool,
            Value::Text(_) => ValueKind::Text,
            Value::Bytes(_) => ValueKind::Bytes,
        }
    }

    /// Heap memory of the value.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Value::Text(text) => text.len(),
            Value::Bytes(bytes) => bytes.len(),
            _ => 0,
        }
    }

    /// Converts between integers and booleans, which SQLite does not distinguish.
    pub(crate) fn into_kind(self, kind: ValueKind) -> Result<Value, Value> {
        match (self, kind) {
            (Value::Int(n @ (0 | 1)), ValueKind::Bool) => Ok(Value::Bool(n == 1)),
            (Value::Bool(flag), ValueKind::Int) => Ok(Value::Int(flag.into())),
            (value, kind) if value.kind() == kind => Ok(value),
            (value, _) => Err(value),
        }
    }
}

macro_rules! integers {
    ($($integer:ty),*) => {$(
        impl Bind for $integer {
            const KIND: ValueKind = ValueKind::Int;

            fn store(self) -> Result<Option<Value>, Error> {
                i64::try_from(self)
                    .map(|n| Some(Value::Int(n)))
                    .map_err(|_| Error::invalid_value(format!("the integer {self} is too large: the database stores at most 2^63 - 1")))
            }
        }

        impl Column for $integer {
            const EXPECTED: &'static str = stringify!($integer);

            fn load(value: Option<Value>) -> Result<Self, Option<Value>> {
                match value {
                    Some(Value::Int(n)) => n.try_into().map_err(|_| value),
                    other => Err(other),
                }
            }
        }
    )*};
}

integers!(i16, i32, i64, u8, u16, u32, u64, usize);

impl Bind for f64 {
    const KIND: ValueKind = ValueKind::Real;

    fn store(self) -> Result<Option<Value>, Error> {
        if self.is_nan() {
            return Err(Error::invalid_value("NaN cannot be stored in the database"));
        }
        Ok(Some(Value::Real(self)))
    }
}

impl Column for f64 {
    const EXPECTED: &'static str = "a floating-point number";

    fn load(value: Option<Value>) -> Result<Self, Option<Value>> {
        match value {
            Some(Value::Real(x)) => Ok(x),
            other => Err(other),
        }
    }
}

impl Bind for bool {
    const KIND: ValueKind = ValueKind::Bool;

    fn store(self) -> Result<Option<Value>, Error> {
        Ok(Some(Value::Bool(self)))
    }
}

impl Column for bool {
    const EXPECTED: &'static str = "true or false";

    fn load(value: Option<Value>) -> Result<Self, Option<Value>> {
        match value {
            Some(Value::Bool(flag)) => Ok(flag),
            Some(Value::Int(n @ (0 | 1))) => Ok(n == 1),
            other => Err(other),
        }
    }
}

impl Bind for String {
    const KIND: ValueKind = ValueKind::Text;

    fn store(self) -> Result<Option<Value>, Error> {
        if self.contains('\0') {
            return Err(Error::invalid_value("text with a zero byte cannot be stored in the database"));
        }
        Ok(Some(Value::Text(self)))
    }
}

impl Bind for &str {
    const KIND: ValueKind = ValueKind::Text;

    fn store(self) -> Result<Option<Value>, Error> {
        self.to_owned().store()
    }
}

impl Column for String {
    const EXPECTED: &'static str = "text";

    fn load(value: Option<Value>) -> Result<Self, Option<Value>> {
        match value {
            Some(Value::Text(text)) => Ok(text),
            other => Err(other),
        }
    }
}

impl Bind for Vec<u8> {
    const KIND: ValueKind = ValueKind::Bytes;

    fn store(self) -> Result<Option<Value>, Error> {
        Ok(Some(Value::Bytes(self)))
    }
}

impl Bind for &[u8] {
    const KIND: ValueKind = ValueKind::Bytes;

    fn store(self) -> Result<Option<Value>, Error> {
        self.to_vec().store()
    }
}

impl Column for Vec<u8> {
    const EXPECTED: &'static str = "bytes";

    fn load(value: Option<Value>) -> Result<Self, Option<Value>> {
        match value {
            Some(Value::Bytes(bytes)) => Ok(bytes),
            other => Err(other),
        }
    }
}

/// Any value except NULL.
impl Column for Value {
    const EXPECTED: &'static str = "a value";

    fn load(value: Option<Value>) -> Result<Self, Option<Value>> {
        value.ok_or(None)
    }
}

impl<T: Bind> Bind for Option<T> {
    const KIND: ValueKind = T::KIND;

    fn store(self) -> Result<Option<Value>, Error> {
        self.map_or(Ok(None), T::store)
    }
}

impl<T: Column> Column for Option<T> {
    const EXPECTED: &'static str = T::EXPECTED;

    fn load(value: Option<Value>) -> Result<Self, Option<Value>> {
        match value {
            None => Ok(None),
            value => T::load(value).map(Some),
        }
    }
}

impl<T: Bind + Clone> Bind for &T {
    const KIND: ValueKind = T::KIND;

    fn store(self) -> Result<Option<Value>, Error> {
        self.clone().store()
    }
}

/// Implements [`Bind`] and [`Column`] for a type.
///
/// `column!(MonitorId(String))` is for a newtype; `column!(State as text)` for a type with `Display` and `FromStr`, such
/// as an enum of states.
#[macro_export]
macro_rules! column {
    ($type:ident ( $inner:ty )) => {
        impl $crate::Bind for $type {
            const KIND: $crate::ValueKind = <$inner as $crate::Bind>::KIND;

            fn store(self) -> Result<Option<$crate::Value>, $crate::Error> {
                $crate::Bind::store(self.0)
            }
        }

        impl $crate::Column for $type {
            const EXPECTED: &'static str = <$inner as $crate::Column>::EXPECTED;

            fn load(value: Option<$crate::Value>) -> Result<Self, Option<$crate::Value>> {
                <$inner as $crate::Column>::load(value).map($type)
            }
        }
    };
    ($type:ident as text) => {
        impl $crate::Bind for $type {
            const KIND: $crate::ValueKind = $crate::ValueKind::Text;

            fn store(self) -> Result<Option<$crate::Value>, $crate::Error> {
                $crate::Bind::store(self.to_string())
            }
        }

        impl $crate::Column for $type {
            const EXPECTED: &'static str = stringify!($type);

            fn load(value: Option<$crate::Value>) -> Result<Self, Option<$crate::Value>> {
                match &value {
                    Some($crate::Value::Text(text)) => text.parse().map_err(|_| value),
                    _ => Err(value),
                }
            }
        }
    };
}
