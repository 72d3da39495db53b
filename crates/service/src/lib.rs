//! The resources of a service: the [`ServiceContext`] with store, database, node, secrets and background tasks, and
//! its section of the configuration.
//!
//! A service is opened with a [`ServiceContext`] and its [`Live`] configuration. It does not depend on the binary.

pub mod config;
mod context;
pub mod keys;
mod metric;
pub mod nodes;
mod noise;
mod tasks;

pub use config::{Live, Period, SecretName, SecretRef, Section};
pub use context::{NodeName, ServiceContext};
pub use metric::{Buckets, Metric, MetricKind, Samples};
pub use noise::noise;
pub use tasks::{Task, TaskState, Tasks};

/// Used only by the expansion of [`section!`].
#[doc(hidden)]
pub mod macro_support {
    pub use serde;
    pub use toml;
}
