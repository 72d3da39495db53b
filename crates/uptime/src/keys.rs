//! The keys of `schemas/uptime.toml`.

hob_schema_macros::keys!("schemas/uptime.toml");

impl std::str::FromStr for MonitorId {
    type Err = hob_schema::IdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::new(text)
    }
}
