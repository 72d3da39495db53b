//! Small types and helpers that all crates share: human-readable durations and sizes, names of enum values, backoff, secrets,
//! a throttle for failed authentication, the clock, a bounded map, errors of serde in plain words.
//!
//! ```
//! use std::time::Duration;
//! use hob_units::{Backoff, Period, Secret, format_size, parse_duration, parse_size};
//!
//! assert_eq!(parse_duration("1h 30m"), Ok(Duration::from_secs(5_400)));
//! assert_eq!(Period::from_secs(90).to_string(), "1m 30s");
//! assert_eq!(parse_size("4 KiB"), Ok(4_096));
//! assert_eq!(format_size(1_536), "1.5 KiB");
//!
//! let mut backoff = Backoff::exponential(Duration::from_millis(100), Duration::from_secs(5)).with_jitter(0.5..1.0);
//! assert!(backoff.next() <= Duration::from_millis(100));
//!
//! assert_eq!(format!("{:?}", Secret::from("hunter2")), "Secret(…)");
//! ```

mod auth_throttle;
mod backoff;
mod clock;
mod duration;
mod error_text;
mod names;
mod nearest;
mod period;
mod plain;
mod quantity;
mod recent_map;
mod secret;
mod size;

pub use auth_throttle::AuthThrottle;
pub use backoff::Backoff;
pub use clock::{unix_ms, unix_time};
pub use duration::{DurationError, format_duration, parse_duration};
pub use error_text::error_text;
pub use names::UnknownName;
pub use nearest::nearest;
pub use period::Period;
pub use plain::plain_serde_error;
pub use recent_map::RecentMap;
pub use secret::Secret;
pub use size::{SizeError, format_count, format_size, parse_size};
