//! The lint rules: id, severity, explanation.

use serde::{Deserialize, Serialize};

/// The severity of a finding; the exit code of a command follows the highest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Warning,
    Error,
}

hob_units::names!(Severity { Warning = "warning", Error = "error" });

/// One lint rule.
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
        title: "two families share a key",
        explanation: "A key must belong to one family, or its type, TTL and owner are unclear: \
            `unread:<user>:<conversation>` also matches `unread:<user>:total` when a conversation is named \
            \"total\". Give one of the two another literal, or exclude the word with `not = [\"total\"]`. This is \
            an error of the file and cannot be allowed.",
    },
    Rule {
        id: "separator-in-id",
        severity: Warning,
        title: "a placeholder may contain the separator",
        explanation: "An id that keeps its colons makes a key whose segments cannot be counted: globs match too \
            much, and a reader has to know which placeholder to parse last. Remove `raw = \":\"` and the \
            colon is encoded as %3A. If the raw form is documented, keep it and give the reason.",
    },
    Rule {
        id: "two-encodings",
        severity: Warning,
        title: "one id has two encodings",
        explanation: "When `GET /users` and `GET_/users` name the same endpoint in two families, readers \
            join them wrongly or read a key that does not exist. Use one encoding in all patterns.",
    },
    Rule {
        id: "raw-path",
        severity: Warning,
        title: "a raw path in a key",
        explanation: "Clients choose paths: paths contain ids, so the number of keys is unbounded, and they contain \
            characters with a meaning in globs. Use route templates, bound the family with \
            `max_keys`, or remove `raw = \"/\"`.",
    },
    Rule {
        id: "space-in-key",
        severity: Warning,
        title: "spaces in keys",
        explanation: "A key with a space must be quoted in redis-cli, breaks scripts that split lines, and looks \
            like two words in MONITOR and in logs. Use `_` or let the space be encoded.",
    },
    Rule {
        id: "no-prefix",
        severity: Warning,
        title: "keys have no prefix",
        explanation: "Without a prefix two systems, or two stages of one, cannot share a server, ACL rules \
            cannot tell their keys apart, and `user:1` is claimed by both. Set `prefix` under \
            [schema], with `env` to change it for each deployment.",
    },
    Rule {
        id: "accidental-tag",
        severity: Error,
        title: "braces without a placeholder",
        explanation: "Braces are Redis's hash tag: only the text inside decides the slot. \
            `requests:{endpoint}` written literally puts every key into one slot. A placeholder is written \
            <endpoint>; a tag is written {<userId>}.",
    },
    Rule {
        id: "same-purpose",
        severity: Warning,
        title: "two families have one purpose",
        explanation: "Two keys for one fact drift apart, and it is unclear which is right. Keep one, or state \
            in `purpose` what each of them is for.",
    },
    Rule {
        id: "ttl-missing",
        severity: Error,
        title: "no TTL and no reason",
        explanation: "A key without a TTL stays until it is deleted, and usually it never is. Give a rule (`ttl = { \
            max = \"1h\" }`), or the reason why it may stay: `ttl = { none = \"…\" }`.",
    },
    Rule {
        id: "no-backstop",
        severity: Error,
        title: "a TTL that starts only after an event",
        explanation: "\"Until one hour after it ends\" means forever if the process that would end it dies. \
            Set a TTL with every write and renew it while the entity lives: add `backstop`.",
    },
    Rule {
        id: "renewed-window",
        severity: Error,
        title: "writes renew the TTL of a window",
        explanation: "If each request extends a fixed window, a caller that never pauses is \
            counted forever and stays blocked. Set the TTL only when the window begins: `renewed = \
            false`.",
    },
    Rule {
        id: "expiring-buffer",
        severity: Error,
        title: "a buffer can expire before it is drained",
        explanation: "Entries in a key with a TTL are lost if no reader comes before it expires. \
            Bound the buffer by length and apply backpressure to the writer, or keep the data elsewhere until it is \
            processed.",
    },
    Rule {
        id: "no-cap",
        severity: Warning,
        title: "a collection without a bound",
        explanation: "A list, set, hash or sorted set that only grows becomes the key that blocks the server. \
            Declare `max_len` and trim with every write. A stream may be trimmed by age instead: `max_age`.",
    },
    Rule {
        id: "no-max-pending",
        severity: Warning,
        title: "consumer groups without a bound",
        explanation: "Entries that a consumer received but never acknowledged stay pending for ever, also if the \
            consumer is gone, and each of them needs memory. `max_pending` declares how many are normal, so that \
            the audit reports when there are more; claim old ones with XAUTOCLAIM.",
    },
    Rule {
        id: "no-max-keys",
        severity: Warning,
        title: "a family without a bound",
        explanation: "A pattern with a placeholder has as many keys as there are ids. `max_keys` declares how \
            many are normal, so that the audit reports when there are more.",
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
        explanation: "A key without a documented purpose cannot be deleted safely. State in one sentence why it \
            exists. Families with the purpose `TODO`, which `infer` writes, are counted in one finding.",
    },
    Rule {
        id: "mixed-types",
        severity: Warning,
        title: "keys of one pattern have several types",
        explanation: "A command for one type fails with WRONGTYPE on the others, and of keys with a type in `also` \
            only the TTL is checked. Give each type its own pattern and remove `also`.",
    },
    Rule {
        id: "unconfirmed",
        severity: Warning,
        title: "an unconfirmed suspicion",
        explanation: "`infer` declares what it finds, even if that is a mistake: sessions without a TTL, lists that \
            only grow. It lists such observations in `unconfirmed`. Correct the declaration, or give the reason why it \
            is intended; then remove the entry.",
    },
    Rule {
        id: "unused-id",
        severity: Warning,
        title: "an id that no pattern uses",
        explanation: "A rule under [ids] that no pattern, field or value names checks nothing. Remove it, or \
            correct the name of the placeholder.",
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
