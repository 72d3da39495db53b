//! Counts traffic: records requests in memory, publishes the counts to Redis and the database, and reads what all
//! instances counted.

pub(crate) mod counter;
pub(crate) mod counts;
pub(crate) mod endpoints;
pub(crate) mod foreign;
pub(crate) mod histogram;
pub(crate) mod meter;
pub(crate) mod publisher;
pub(crate) mod statistics;
