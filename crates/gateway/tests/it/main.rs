//! The gateway's contract, on every store: G1–G19, read with plain commands.

mod counts;
mod faces;
mod kit;
mod limits;
mod loss;
mod oracle;
mod proxy;
mod upstream;
