//! The data: the keyspace and the types of value.

mod awaited;
pub(crate) mod events;
pub(crate) mod keyspace;
mod ranked_list;
pub(crate) mod sorted_set;
mod stream;
pub(crate) mod value;
mod watch;

pub(crate) use events::{EventClass, EventFlags};
pub(crate) use keyspace::{Keyspace, Lookups, Scan};
pub(crate) use sorted_set::{Bound, LexBound, SortedSet};
pub(crate) use stream::{Entry, Group, Stream, StreamId, Trim};
pub(crate) use value::{End, Hash, List, Set, Str, Value};
pub(crate) use watch::Watch;
