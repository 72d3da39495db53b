//! Roles: presets of scopes for people.

use serde::{Deserialize, Serialize};

use super::Scope;

/// A preset for people. Other combinations are lists of scopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reads everything except tokens and the audit log.
    Viewer,
    /// Also changes everything except tokens.
    Editor,
    Admin,
}

impl Role {
    /// The scope that the role stands for.
    #[must_use]
    pub const fn scope(self) -> Scope {
        match self {
            Self::Viewer => Scope::read(Scope::ALL),
            Self::Editor => Scope::write(Scope::ALL),
            Self::Admin => Scope::Admin,
        }
    }
}
