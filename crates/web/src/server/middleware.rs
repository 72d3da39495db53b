//! What every request passes on its way in, and every response on its way out.

mod headers;
mod limits;
mod origin;
mod present;
mod trace;

pub(crate) use headers::secure;
pub(crate) use limits::{Limits, limit};
pub use origin::Origin;
pub(crate) use origin::same_origin;
pub(crate) use present::{panicked, present};
pub(crate) use trace::{RequestId, trace};
