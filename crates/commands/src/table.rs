//! The table of commands. Each family has an enum, so that the compiler checks that a program such as the engine
//! handles every command.

use crate::command::{Command, Flags, Keys};

/// The commands of one family.
#[derive(Debug)]
pub struct Family {
    pub title: &'static str,
    pub commands: &'static [Command],
}

const READ: Flags = Flags::READONLY;
const READ_FAST: Flags = Flags::READONLY.and(Flags::FAST);
const WRITE: Flags = Flags::WRITE;
const WRITE_FAST: Flags = Flags::WRITE.and(Flags::FAST);
/// Writes that may need memory.
const GROW: Flags = Flags::WRITE.and(Flags::DENYOOM);
const GROW_FAST: Flags = GROW.and(Flags::FAST);
/// Pops that may wait. In a script they could not, so scripts may use only those that were added later.
const BLOCK: Flags = BLOCK_OR_SCRIPT.and(Flags::NOSCRIPT);
const BLOCK_FAST: Flags = BLOCK.and(Flags::FAST);
const BLOCK_GROW: Flags = BLOCK.and(Flags::DENYOOM);
const BLOCK_OR_SCRIPT: Flags = Flags::WRITE.and(Flags::BLOCKING);
const READ_OR_BLOCK: Flags = Flags::READONLY.and(Flags::BLOCKING);
/// Allowed in every state of a server.
const ALWAYS: Flags = Flags::LOADING.and(Flags::STALE);
const ALWAYS_FAST: Flags = ALWAYS.and(Flags::FAST);
const STALE: Flags = Flags::STALE;
const CONTROL: Flags = Flags::NOSCRIPT.and(ALWAYS);
/// While a script keeps the store busy, a client may begin and end a transaction, but not queue commands.
const TRANSACTION: Flags = CONTROL.and(Flags::FAST).and(Flags::ALLOW_BUSY);
const EXEC: Flags = CONTROL.and(Flags::SKIP_SLOWLOG);
const ADMIN: Flags = CONTROL.and(Flags::ADMIN);
const PUBSUB: Flags = Flags::PUBSUB.and(ALWAYS);
const PUBLISH: Flags = PUBSUB.and(Flags::FAST);
const SUBSCRIBE: Flags = CONTROL.and(Flags::PUBSUB);
const SCRIPT: Flags = Flags::NOSCRIPT;
const LOAD: Flags = SCRIPT.and(Flags::STALE).and(Flags::LUA);
const EVAL: Flags = LOAD.and(Flags::SKIP_MONITOR).and(Flags::NO_MANDATORY_KEYS);
const EVAL_READ: Flags = EVAL.and(Flags::READONLY);
/// Ends a script that keeps the store busy.
const KILL: Flags = SCRIPT.and(Flags::ALLOW_BUSY);
/// While a script keeps the store busy, a client must be able to authenticate in order to kill it.
const GREETING: Flags = CONTROL.and(Flags::FAST).and(Flags::NO_AUTH).and(Flags::ALLOW_BUSY);
const FAST: Flags = Flags::FAST;
const NONE: Flags = Flags::NONE;

const NO_KEY: Keys = Keys::None;
const ONE: Keys = Keys::Range { first: 1, last: 1, step: 1 };
const TWO: Keys = Keys::Range { first: 1, last: 2, step: 1 };
const REST: Keys = Keys::Range { first: 1, last: -1, step: 1 };
/// Keys and values in turn.
const PAIRS: Keys = Keys::Range { first: 1, last: -1, step: 2 };
/// The argument after a subcommand.
const SECOND: Keys = Keys::Range { first: 2, last: 2, step: 1 };
/// All after an operation.
const FROM_SECOND: Keys = Keys::Range { first: 2, last: -1, step: 1 };
/// All but the last, which is a timeout.
const UNTIL_LAST: Keys = Keys::Range { first: 1, last: -2, step: 1 };
const COUNTED_FIRST: Keys = Keys::Counted { at: 1 };
/// A key that is written, and a number of keys that are read.
const TARGET_COUNTED: Keys = Keys::TargetAndCounted { at: 2 };
const COUNTED: Keys = Keys::Counted { at: 2 };
const STREAMS: Keys = Keys::Streams;

/// Declares the families. Each family gets an enum with one variant per command, and a variant of [`CommandId`]. Each
/// command gets its name, arity, flags and keys.
macro_rules! families {
    ($($title:literal $id:ident as $variant:ident {
        $($command:ident: $name:literal, $arity:literal, $flags:ident, $keys:ident;)*
    })*) => {
        /// Identifies a command.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum CommandId {
            $($variant($id),)*
        }

        $(
            #[doc = concat!("Commands of the family \"", $title, "\".")]
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub enum $id {
                $($command,)*
            }

            impl From<$id> for CommandId {
                fn from(id: $id) -> Self {
                    Self::$variant(id)
                }
            }
        )*

        /// All commands. The documentation has the families in this order.
        pub const FAMILIES: &[Family] = &[$(
            Family {
                title: $title,
                commands: &[$(Command {
                    id: CommandId::$variant($id::$command),
                    name: $name,
                    arity: $arity,
                    flags: $flags,
                    keys: $keys,
                },)*],
            },
        )*];
    };
}

families! {
    "Keys" KeyCommand as Key {
        Del: "del", -2, WRITE, REST;
        Unlink: "unlink", -2, WRITE_FAST, REST;
        Exists: "exists", -2, READ_FAST, REST;
        Type: "type", 2, READ_FAST, ONE;
        Expire: "expire", -3, WRITE_FAST, ONE;
        PExpire: "pexpire", -3, WRITE_FAST, ONE;
        ExpireAt: "expireat", -3, WRITE_FAST, ONE;
        PExpireAt: "pexpireat", -3, WRITE_FAST, ONE;
        Ttl: "ttl", 2, READ_FAST, ONE;
        PTtl: "pttl", 2, READ_FAST, ONE;
        ExpireTime: "expiretime", 2, READ_FAST, ONE;
        PExpireTime: "pexpiretime", 2, READ_FAST, ONE;
        Persist: "persist", 2, WRITE_FAST, ONE;
        Keys: "keys", 2, READ, NO_KEY;
        Scan: "scan", -2, READ, NO_KEY;
        Rename: "rename", 3, WRITE, TWO;
        RenameNx: "renamenx", 3, WRITE_FAST, TWO;
        Copy: "copy", -3, GROW, TWO;
        Touch: "touch", -2, READ_FAST, REST;
        RandomKey: "randomkey", 1, READ, NO_KEY;
        DbSize: "dbsize", 1, READ_FAST, NO_KEY;
        FlushDb: "flushdb", -1, WRITE, NO_KEY;
        FlushAll: "flushall", -1, WRITE, NO_KEY;
        ObjectEncoding: "object|encoding", 3, READ, SECOND;
        ObjectFreq: "object|freq", 3, READ, SECOND;
        ObjectRefCount: "object|refcount", 3, READ, SECOND;
        MemoryUsage: "memory|usage", -3, READ, SECOND;
        MemoryStats: "memory|stats", 2, NONE, NO_KEY;
    }

    "Strings" StringCommand as String {
        Get: "get", 2, READ_FAST, ONE;
        Set: "set", -3, GROW, ONE;
        SetNx: "setnx", 3, GROW_FAST, ONE;
        SetEx: "setex", 4, GROW, ONE;
        PSetEx: "psetex", 4, GROW, ONE;
        GetSet: "getset", 3, GROW_FAST, ONE;
        GetDel: "getdel", 2, WRITE_FAST, ONE;
        GetEx: "getex", -2, WRITE_FAST, ONE;
        MGet: "mget", -2, READ_FAST, REST;
        MSet: "mset", -3, GROW, PAIRS;
        MSetNx: "msetnx", -3, GROW, PAIRS;
        SetRange: "setrange", 4, GROW, ONE;
        Append: "append", 3, GROW_FAST, ONE;
        StrLen: "strlen", 2, READ_FAST, ONE;
        GetRange: "getrange", 4, READ, ONE;
        SubStr: "substr", 4, READ, ONE;
        SetBit: "setbit", 4, GROW, ONE;
        GetBit: "getbit", 3, READ_FAST, ONE;
        BitCount: "bitcount", -2, READ, ONE;
        BitPos: "bitpos", -3, READ, ONE;
        BitOp: "bitop", -4, GROW, FROM_SECOND;
        Incr: "incr", 2, GROW_FAST, ONE;
        Decr: "decr", 2, GROW_FAST, ONE;
        IncrBy: "incrby", 3, GROW_FAST, ONE;
        DecrBy: "decrby", 3, GROW_FAST, ONE;
        IncrByFloat: "incrbyfloat", 3, GROW_FAST, ONE;
    }

    "Hashes" HashCommand as Hash {
        HSet: "hset", -4, GROW_FAST, ONE;
        HMSet: "hmset", -4, GROW_FAST, ONE;
        HGet: "hget", 3, READ_FAST, ONE;
        HMGet: "hmget", -3, READ_FAST, ONE;
        HGetAll: "hgetall", 2, READ, ONE;
        HDel: "hdel", -3, WRITE_FAST, ONE;
        HExists: "hexists", 3, READ_FAST, ONE;
        HLen: "hlen", 2, READ_FAST, ONE;
        HKeys: "hkeys", 2, READ, ONE;
        HVals: "hvals", 2, READ, ONE;
        HSetNx: "hsetnx", 4, GROW_FAST, ONE;
        HIncrBy: "hincrby", 4, GROW_FAST, ONE;
        HIncrByFloat: "hincrbyfloat", 4, GROW_FAST, ONE;
        HScan: "hscan", -3, READ, ONE;
        HStrLen: "hstrlen", 3, READ_FAST, ONE;
        HRandField: "hrandfield", -2, READ, ONE;
    }

    "Lists" ListCommand as List {
        LPush: "lpush", -3, GROW_FAST, ONE;
        RPush: "rpush", -3, GROW_FAST, ONE;
        LPushX: "lpushx", -3, GROW_FAST, ONE;
        RPushX: "rpushx", -3, GROW_FAST, ONE;
        LPop: "lpop", -2, WRITE_FAST, ONE;
        RPop: "rpop", -2, WRITE_FAST, ONE;
        LRange: "lrange", 4, READ, ONE;
        LTrim: "ltrim", 4, WRITE, ONE;
        LLen: "llen", 2, READ_FAST, ONE;
        LIndex: "lindex", 3, READ, ONE;
        LSet: "lset", 4, GROW, ONE;
        LRem: "lrem", 4, WRITE, ONE;
        LMove: "lmove", 5, GROW, TWO;
        RPopLPush: "rpoplpush", 3, GROW, TWO;
        LMPop: "lmpop", -4, WRITE, COUNTED_FIRST;
        LPos: "lpos", -3, READ, ONE;
        LInsert: "linsert", 5, GROW, ONE;
        BLPop: "blpop", -3, BLOCK, UNTIL_LAST;
        BRPop: "brpop", -3, BLOCK, UNTIL_LAST;
        BLMove: "blmove", 6, BLOCK_GROW, TWO;
        BRPopLPush: "brpoplpush", 4, BLOCK_GROW, TWO;
        BLMPop: "blmpop", -5, BLOCK_OR_SCRIPT, COUNTED;
    }

    "Sets" SetCommand as Set {
        SAdd: "sadd", -3, GROW_FAST, ONE;
        SRem: "srem", -3, WRITE_FAST, ONE;
        SMembers: "smembers", 2, READ, ONE;
        SIsMember: "sismember", 3, READ_FAST, ONE;
        SMIsMember: "smismember", -3, READ_FAST, ONE;
        SCard: "scard", 2, READ_FAST, ONE;
        SPop: "spop", -2, WRITE_FAST, ONE;
        SRandMember: "srandmember", -2, READ, ONE;
        SInter: "sinter", -2, READ, REST;
        SUnion: "sunion", -2, READ, REST;
        SDiff: "sdiff", -2, READ, REST;
        SInterStore: "sinterstore", -3, GROW, REST;
        SUnionStore: "sunionstore", -3, GROW, REST;
        SDiffStore: "sdiffstore", -3, GROW, REST;
        SInterCard: "sintercard", -3, READ, COUNTED_FIRST;
        SMove: "smove", 4, WRITE_FAST, TWO;
        SScan: "sscan", -3, READ, ONE;
    }

    "Sorted sets" SortedSetCommand as SortedSet {
        ZAdd: "zadd", -4, GROW_FAST, ONE;
        ZRem: "zrem", -3, WRITE_FAST, ONE;
        ZScore: "zscore", 3, READ_FAST, ONE;
        ZMScore: "zmscore", -3, READ_FAST, ONE;
        ZIncrBy: "zincrby", 4, GROW_FAST, ONE;
        ZCard: "zcard", 2, READ_FAST, ONE;
        ZCount: "zcount", 4, READ_FAST, ONE;
        ZLexCount: "zlexcount", 4, READ_FAST, ONE;
        ZRange: "zrange", -4, READ, ONE;
        ZRangeByScore: "zrangebyscore", -4, READ, ONE;
        ZRevRangeByScore: "zrevrangebyscore", -4, READ, ONE;
        ZRevRange: "zrevrange", -4, READ, ONE;
        ZRangeByLex: "zrangebylex", -4, READ, ONE;
        ZRevRangeByLex: "zrevrangebylex", -4, READ, ONE;
        ZRangeStore: "zrangestore", -5, GROW, TWO;
        ZRank: "zrank", 3, READ_FAST, ONE;
        ZRevRank: "zrevrank", 3, READ_FAST, ONE;
        ZRemRangeByRank: "zremrangebyrank", 4, WRITE, ONE;
        ZRemRangeByScore: "zremrangebyscore", 4, WRITE, ONE;
        ZRemRangeByLex: "zremrangebylex", 4, WRITE, ONE;
        ZPopMin: "zpopmin", -2, WRITE_FAST, ONE;
        ZPopMax: "zpopmax", -2, WRITE_FAST, ONE;
        ZScan: "zscan", -3, READ, ONE;
        ZRandMember: "zrandmember", -2, READ, ONE;
        ZUnion: "zunion", -3, READ, COUNTED_FIRST;
        ZInter: "zinter", -3, READ, COUNTED_FIRST;
        ZDiff: "zdiff", -3, READ, COUNTED_FIRST;
        ZInterCard: "zintercard", -3, READ, COUNTED_FIRST;
        ZUnionStore: "zunionstore", -4, GROW, TARGET_COUNTED;
        ZInterStore: "zinterstore", -4, GROW, TARGET_COUNTED;
        ZDiffStore: "zdiffstore", -4, GROW, TARGET_COUNTED;
        ZMPop: "zmpop", -4, WRITE, COUNTED_FIRST;
        BZPopMin: "bzpopmin", -3, BLOCK_FAST, UNTIL_LAST;
        BZPopMax: "bzpopmax", -3, BLOCK_FAST, UNTIL_LAST;
        BZMPop: "bzmpop", -5, BLOCK_OR_SCRIPT, COUNTED;
    }

    "Streams" StreamCommand as Stream {
        XAdd: "xadd", -5, GROW_FAST, ONE;
        XLen: "xlen", 2, READ_FAST, ONE;
        XRange: "xrange", -4, READ, ONE;
        XRevRange: "xrevrange", -4, READ, ONE;
        XRead: "xread", -4, READ_OR_BLOCK, STREAMS;
        XTrim: "xtrim", -4, WRITE, ONE;
        XDel: "xdel", -3, WRITE_FAST, ONE;
        XSetId: "xsetid", -3, GROW_FAST, ONE;
        GroupCreate: "xgroup|create", -5, GROW, SECOND;
        GroupSetId: "xgroup|setid", -5, WRITE, SECOND;
        GroupDestroy: "xgroup|destroy", 4, WRITE, SECOND;
        GroupCreateConsumer: "xgroup|createconsumer", 5, GROW, SECOND;
        GroupDelConsumer: "xgroup|delconsumer", 5, WRITE, SECOND;
        XReadGroup: "xreadgroup", -7, BLOCK_OR_SCRIPT, STREAMS;
        XAck: "xack", -4, WRITE_FAST, ONE;
        XPending: "xpending", -3, READ, ONE;
        XClaim: "xclaim", -6, WRITE_FAST, ONE;
        XAutoClaim: "xautoclaim", -6, WRITE_FAST, ONE;
        InfoStream: "xinfo|stream", -3, READ, SECOND;
        InfoGroups: "xinfo|groups", 3, READ, SECOND;
        InfoConsumers: "xinfo|consumers", 4, READ, SECOND;
    }

    "Pub/sub" PubSubCommand as PubSub {
        Publish: "publish", 3, PUBLISH, NO_KEY;
        Subscribe: "subscribe", -2, SUBSCRIBE, NO_KEY;
        Unsubscribe: "unsubscribe", -1, SUBSCRIBE, NO_KEY;
        PSubscribe: "psubscribe", -2, SUBSCRIBE, NO_KEY;
        PUnsubscribe: "punsubscribe", -1, SUBSCRIBE, NO_KEY;
        Channels: "pubsub|channels", -2, PUBSUB, NO_KEY;
        NumSub: "pubsub|numsub", -2, PUBSUB, NO_KEY;
        NumPat: "pubsub|numpat", 2, PUBSUB, NO_KEY;
    }

    "Transactions" TransactionCommand as Transaction {
        Multi: "multi", 1, TRANSACTION, NO_KEY;
        Exec: "exec", 1, EXEC, NO_KEY;
        Discard: "discard", 1, TRANSACTION, NO_KEY;
        Watch: "watch", -2, TRANSACTION, REST;
        Unwatch: "unwatch", 1, TRANSACTION, NO_KEY;
    }

    "Scripts" ScriptCommand as Script {
        Eval: "eval", -3, EVAL, COUNTED;
        EvalRo: "eval_ro", -3, EVAL_READ, COUNTED;
        EvalSha: "evalsha", -3, EVAL, COUNTED;
        EvalShaRo: "evalsha_ro", -3, EVAL_READ, COUNTED;
        Load: "script|load", 3, LOAD, NO_KEY;
        Exists: "script|exists", -3, SCRIPT, NO_KEY;
        Flush: "script|flush", -2, SCRIPT, NO_KEY;
        Kill: "script|kill", 2, KILL, NO_KEY;
    }

    "Server and connection" ServerCommand as Server {
        Ping: "ping", -1, FAST, NO_KEY;
        Echo: "echo", 2, ALWAYS_FAST, NO_KEY;
        Hello: "hello", -1, GREETING, NO_KEY;
        Auth: "auth", -2, GREETING, NO_KEY;
        Select: "select", 2, ALWAYS_FAST, NO_KEY;
        Reset: "reset", 1, GREETING, NO_KEY;
        Quit: "quit", -1, GREETING, NO_KEY;
        ClientId: "client|id", 2, CONTROL, NO_KEY;
        ClientGetName: "client|getname", 2, CONTROL, NO_KEY;
        ClientSetName: "client|setname", 3, CONTROL, NO_KEY;
        ClientSetInfo: "client|setinfo", 4, CONTROL, NO_KEY;
        ClientInfo: "client|info", 2, CONTROL, NO_KEY;
        ClientList: "client|list", -2, ADMIN, NO_KEY;
        ClientKill: "client|kill", -3, ADMIN, NO_KEY;
        ClientUnblock: "client|unblock", -3, ADMIN, NO_KEY;
        ClientNoEvict: "client|no-evict", 3, ADMIN, NO_KEY;
        ConfigGet: "config|get", -3, ADMIN, NO_KEY;
        ConfigSet: "config|set", -4, ADMIN, NO_KEY;
        ConfigResetStat: "config|resetstat", 2, ADMIN, NO_KEY;
        Command: "command", -1, ALWAYS, NO_KEY;
        Info: "info", -1, ALWAYS, NO_KEY;
        Time: "time", 1, ALWAYS_FAST, NO_KEY;
        Wait: "wait", 3, SCRIPT, NO_KEY;
        Monitor: "monitor", 1, ADMIN, NO_KEY;
        ClusterKeySlot: "cluster|keyslot", 3, STALE, NO_KEY;
        // As in Redis, these commands close the connection, because they mean that the client speaks HTTP: otherwise a
        // web page could make a browser send commands.
        HttpPost: "post", -1, GREETING, NO_KEY;
        HttpHost: "host:", -1, GREETING, NO_KEY;
    }
}
