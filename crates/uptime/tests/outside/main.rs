//! Where Hob meets strangers: targets that are checked, and channels that are told.

mod alerts;
mod badges;
mod dns;
mod fuzz;
mod hostile;
mod http;
mod identity;
mod mail;
mod secrets;
mod target;
