//! The keys of load, from its schema.

use std::str::FromStr;

hob_schema_macros::keys!("schemas/load.toml");

impl FromStr for TestId {
    type Err = hob_schema::IdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::new(text)
    }
}

hob_database::column!(TestId as text);
