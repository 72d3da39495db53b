//! The real binary, as a person runs it.

mod api;
mod config;
mod doctor;
mod load;
mod monitors;
mod pipeline;
mod program;
mod records;
mod schema;
mod serve;
mod token;
mod uptime;
