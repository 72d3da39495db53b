//! What all HTTP faces share: errors, access, layout, charts, live updates, the API document, the server itself.

pub mod chart;
pub mod look;
