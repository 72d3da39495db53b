//! The type of a key.

/// The types of keys in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyType {
    String,
    Hash,
    List,
    Set,
    Zset,
    Stream,
    /// A type that a module adds.
    Module,
}

// As the reply of `TYPE` names it, except for modules.
hob_units::names!(KeyType {
    String = "string",
    Hash = "hash",
    List = "list",
    Set = "set",
    Zset = "zset",
    Stream = "stream",
    Module = "module",
});
