//! The middleware of all requests and responses.

mod headers;
mod limits;
mod origin;
mod problems;
mod sender;
mod trace;

pub use headers::CONTENT_SECURITY_POLICY;
pub(crate) use headers::security_headers;
pub(crate) use limits::{Limits, limit};
pub use origin::Origin;
pub(crate) use origin::{refuse_forwarded_if_open, same_origin};
pub(crate) use problems::{panic_response, present_problems};
pub use sender::{BaseUrl, ClientAddress};
pub(crate) use sender::{Sender, identify_sender};
pub(crate) use trace::{RequestId, trace};
