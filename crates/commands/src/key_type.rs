//! The type of a key.

/// The five types of Redis that Hob's keys have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyType {
    String,
    Hash,
    List,
    Set,
    Zset,
}

// As the reply of `TYPE` names it.
hob_units::names!(KeyType { String = "string", Hash = "hash", List = "list", Set = "set", Zset = "zset" });
