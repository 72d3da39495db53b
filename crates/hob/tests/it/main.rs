//! Integration tests that run the `hob` binary.

mod api;
mod chat;
mod clients;
mod config;
mod contract;
mod database;
mod degraded;
mod doctor;
mod environment;
mod files;
mod foreign;
mod heartbeats;
mod init;
mod load;
mod mistakes;
mod monitors;
mod pipeline;
mod program;
mod schema;
mod script;
mod serve;
mod sign_in;
mod slow;
mod token;
mod uptime;
