//! The real binary, as a person runs it.

mod api;
mod chat;
mod config;
mod crowd;
mod database;
mod doctor;
mod environment;
mod load;
mod monitors;
mod pipeline;
mod program;
mod schema;
mod script;
mod serve;
mod slow;
mod token;
mod uptime;
