//! Every query of the chat. Functions take typed arguments and run on a database, a snapshot or a transaction; what a
//! change means is decided in [`conversation`](crate::conversation).

pub(crate) mod blocks;
pub(crate) mod conversations;
pub(crate) mod deliveries;
pub(crate) mod erasures;
pub(crate) mod events;
pub(crate) mod json_list;
pub(crate) mod members;
pub(crate) mod mentions;
pub(crate) mod messages;
pub(crate) mod reactions;
pub(crate) mod reported_presence;
pub(crate) mod revocations;
pub(crate) mod unread;
pub(crate) mod users;
