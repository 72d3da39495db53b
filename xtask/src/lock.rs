//! The packages of a `Cargo.lock`.

use anyhow::Result;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub(crate) struct Lock {
    #[serde(rename = "package")]
    pub(crate) packages: Vec<LockedPackage>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct LockedPackage {
    pub(crate) name: String,
    pub(crate) version: String,
    /// `None` for the crates of this project.
    pub(crate) source: Option<String>,
}

impl Lock {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        Ok(toml::from_str(text)?)
    }
}
