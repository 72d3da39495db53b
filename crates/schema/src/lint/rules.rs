//! The rules of the linter: an id, how bad it is, and the words of `explain`.

use serde::Serialize;

/// How bad a finding is; the exit code of a command follows the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Warning,
    Error,
}

impl Severity {
    pub fn name(self) -> &'static str {
        match self {
            Warning => "warning",
            Error => "error",
        }
    }
}

/// One thing that the linter knows about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Rule {
    pub id: &'static str,
    pub severity: Severity,
    pub title: &'static str,
    /// Why it matters and what to do.
    pub explanation: &'static str,
}

use Severity::{Error, Warning};

/// All rules, in the order of `explain`.
pub const RULES: &[Rule] = &[
    Rule {
        id: "overlapping-patterns",
        severity: Error,
        title: "two families could be one key",
        explanation: "A key must belong to one family, or nobody can say what type, TTL and owner it has: \
            `unread:<user>:<conversation>` also matches `unread:<user>:total` when a conversation is called \
            \"total\". Give one of the two another literal, or exclude the word with `not = [\"total\"]`. This is \
            a mistake of the file: it cannot be allowed.",
    },
    Rule {
        id: "separator-in-id",
        severity: Warning,
        title: "a placeholder may hold the separator",
        explanation: "An id that keeps its colons makes a key whose segments cannot be counted: globs match too \
            much, and a reader has to know which placeholder to parse last. Leave `raw = \":\"` out and the \
            colon is written as %3A. Where a document fixed the raw form, keep it and say why.",
    },
    Rule {
        id: "two-encodings",
        severity: Warning,
        title: "one id has two spellings",
        explanation: "When `GET /users` and `GET_/users` name the same endpoint in two families, somebody will \
            join them wrongly or look for a key that does not exist. Use one spelling in all patterns.",
    },
    Rule {
        id: "raw-path",
        severity: Warning,
        title: "a raw path stands in a key",
        explanation: "Paths come from strangers: they hold ids, so each one makes keys of its own without end, \
            and they hold characters that mean something in globs. Use route templates, bound the family with \
            `max_keys`, or leave `raw = \"/\"` out.",
    },
    Rule {
        id: "space-in-key",
        severity: Warning,
        title: "keys hold spaces",
        explanation: "A key with a space must be quoted in redis-cli, breaks scripts that split lines, and looks \
            like two words in MONITOR and in logs. Use `_` or let the space be encoded.",
    },
    Rule {
        id: "no-prefix",
        severity: Warning,
        title: "keys have no prefix",
        explanation: "Without a prefix two systems, or two stages of one, cannot share a server, ACL rules \
            cannot tell their keys apart, and `user:1` belongs to whoever came first. Set `prefix` under \
            [schema], with `env` to change it for each deployment.",
    },
    Rule {
        id: "accidental-tag",
        severity: Error,
        title: "braces that are no placeholder",
        explanation: "In a key braces are Redis's hash tag: only what stands inside decides the slot. \
            `requests:{endpoint}` written literally puts every key into one slot. A placeholder is written \
            <endpoint>; a tag is written {<userId>}.",
    },
    Rule {
        id: "same-purpose",
        severity: Warning,
        title: "two families have one purpose",
        explanation: "Two keys for one fact drift apart, and then nobody knows which is right. Keep one, or say \
            in `purpose` what each of them is for.",
    },
    Rule {
        id: "ttl-missing",
        severity: Error,
        title: "no TTL and no reason",
        explanation: "A key without a TTL stays until somebody deletes it, and nobody does. Give a rule (`ttl = { \
            max = \"1h\" }`), or say why it may stay: `ttl = { none = \"…\" }`.",
    },
    Rule {
        id: "no-backstop",
        severity: Error,
        title: "a TTL that starts only after an event",
        explanation: "\"Until one hour after it ends\" means for ever when the process that would end it dies. \
            Write a TTL with every write and renew it while the thing lives: add `backstop`.",
    },
    Rule {
        id: "renewed-window",
        severity: Error,
        title: "writes renew the TTL of a window",
        explanation: "When each request pushes the end of a fixed window out, a caller that never pauses is \
            counted for ever and stays blocked for ever. Set the TTL only when the window begins: `renewed = \
            false`.",
    },
    Rule {
        id: "expiring-buffer",
        severity: Error,
        title: "a buffer can expire before it is drained",
        explanation: "Work or data that waits in a key with a TTL is lost when the reader is away for longer \
            than that. Bound the buffer by length and let the writer hold back, or keep the data elsewhere until \
            it is safe.",
    },
    Rule {
        id: "no-cap",
        severity: Warning,
        title: "a collection without a bound",
        explanation: "A list, set, hash or sorted set that only grows becomes the key that blocks the server. \
            Declare `max_len` and trim with every write.",
    },
    Rule {
        id: "no-max-keys",
        severity: Warning,
        title: "a family without a bound",
        explanation: "A pattern with a placeholder has as many keys as somebody finds ids. `max_keys` says how \
            many are normal, so that the audit can tell when they are not.",
    },
    Rule {
        id: "sample-as-member",
        severity: Warning,
        title: "a sorted set whose member is the sample",
        explanation: "Members are unique: two samples of 150 ms are one member that moves, so 1,000 equal samples \
            leave one. Make the member unique (add a sequence) and let the score be the time.",
    },
    Rule {
        id: "no-common-tag",
        severity: Warning,
        title: "families used together in different slots",
        explanation: "A script or transaction may touch only keys of one slot on a Redis Cluster. Families that \
            name each other in `with` need the same `tag`.",
    },
    Rule {
        id: "no-purpose",
        severity: Warning,
        title: "no purpose",
        explanation: "A key whose purpose nobody wrote down cannot be deleted, since nobody knows who would miss \
            it. Say in one sentence why it exists.",
    },
    Rule {
        id: "unused-id",
        severity: Warning,
        title: "an id that no pattern uses",
        explanation: "A rule under [ids] that no pattern, field or value names checks nothing. Remove it, or \
            correct the name of the placeholder that was meant.",
    },
    Rule {
        id: "idle-allow",
        severity: Warning,
        title: "an exception that is not needed",
        explanation: "An `allow` for a rule that does not exist, or that nothing breaks here, hides the next \
            real finding. Remove it.",
    },
];

/// The rule of this id.
pub fn explain(id: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.id == id)
}
