//! The nodes that share hot state: each says that it lives, what it does and since when; all of them share one
//! set of records, or they would rebuild one another's hot state from different truths.

use std::collections::HashMap;
use std::time::Duration;

use hob_hot::members::{self, Beat, Incarnation, MemberKeys};
use hob_hot::{Hot, cmd};
use hob_records::{RecordsId, UnixMs};

use crate::keys::{self, Keys};
use crate::{House, Task};

/// How long a node counts as alive after it was last heard.
pub const HOLD: Duration = Duration::from_secs(9);

/// How often it says so.
const BEAT_EVERY: Duration = Duration::from_secs(3);

/// Most dead nodes that one node forgets in a round.
const FORGET_AT_ONCE: u32 = 16;

/// What a node tells of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    pub name: String,
    pub version: String,
    /// The systems that run there.
    pub roles: Vec<String>,
    pub started_at: UnixMs,
    pub beat_at: UnixMs,
}

/// Whether these records may use this hot state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    Ours,
    /// Other records have it.
    Taken(String),
}

/// Claims hot state for the records, for ever: the first claim stands.
pub async fn claim(hot: &Hot, keys: &Keys, records: RecordsId) -> hob_hot::Result<Claim> {
    let (key, ours) = (keys.records(), records.to_string());
    let mut found = holder(hot, keys).await?;
    if found.is_none() {
        hot.run::<Option<String>>(cmd("SET").arg(&key).arg(&ours).arg("NX").clone()).await?;
        found = holder(hot, keys).await?;
    }
    match found {
        // Lost between the two commands: the next beat claims it again.
        None => Ok(Claim::Ours),
        Some(holder) if holder == ours => Ok(Claim::Ours),
        Some(holder) => Ok(Claim::Taken(holder)),
    }
}

/// The id of the records that hot state is claimed for.
pub async fn holder(hot: &Hot, keys: &Keys) -> hob_hot::Result<Option<String>> {
    hot.run(cmd("GET").arg(keys.records()).clone()).await
}

/// Lists the nodes that live.
pub async fn live(hot: &Hot, keys: &Keys) -> hob_hot::Result<Vec<NodeFacts>> {
    let groups = GroupKeys::new(keys);
    let members = members::live(hot, groups.members()).await?;
    let mut nodes = Vec::with_capacity(members.len());
    for member in members {
        let facts = cmd("HGETALL").arg(keys.node(&id(&member.incarnation))).clone();
        let fields: HashMap<String, String> = hot.run(facts).await?;
        let text = |field: &str| fields.get(field).cloned().unwrap_or_default();
        let time = |field: &str| UnixMs(fields.get(field).and_then(|ms| ms.parse().ok()).unwrap_or(0));
        nodes.push(NodeFacts {
            name: member.node,
            version: text("version"),
            roles: text("roles").split(' ').filter(|role| !role.is_empty()).map(str::to_owned).collect(),
            started_at: time("started_at"),
            beat_at: time("beat_at"),
        });
    }
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(nodes)
}

/// Keeps this node among the living until the task stops, and forgets the dead.
pub async fn keep_alive(house: House, keys: Keys, roles: Vec<String>, task: Task) {
    let node = Node { house, keys, roles, started_at: now() };
    let mut incarnation = Incarnation::random();
    let mut joined = false;
    loop {
        match node.round(&incarnation, joined).await {
            Ok(Beat::Alive { .. }) => joined = true,
            Ok(Beat::Dead) => (incarnation, joined) = (Incarnation::random(), false),
            Err(error) => tracing::debug!(%error, "this node could not say that it lives"),
        }
        task.beat();
        if !task.pause(BEAT_EVERY).await {
            break;
        }
    }
    let groups = GroupKeys::new(&node.keys);
    if let Err(error) = members::leave(&node.house.hot, groups.members(), &incarnation).await {
        tracing::debug!(%error, "this node could not say that it leaves");
    }
}

struct Node {
    house: House,
    keys: Keys,
    roles: Vec<String>,
    started_at: UnixMs,
}

impl Node {
    async fn round(&self, incarnation: &Incarnation, joined: bool) -> hob_hot::Result<Beat> {
        let (hot, groups) = (&self.house.hot, GroupKeys::new(&self.keys));
        if let Claim::Taken(other) = claim(hot, &self.keys, self.house.records.id()).await? {
            tracing::error!(other, "hot state now belongs to other records");
        }
        let beat = if joined {
            members::beat(hot, groups.members(), incarnation, HOLD).await?
        } else {
            members::join(hot, groups.members(), incarnation, self.house.node.as_str(), HOLD).await?
        };
        self.describe(incarnation).await?;
        for dead in members::sweep(hot, groups.members(), FORGET_AT_ONCE, HOLD).await? {
            tracing::warn!(node = dead.node, "a node is gone without a word");
            members::swept(hot, groups.members(), &dead).await?;
        }
        Ok(beat)
    }

    async fn describe(&self, incarnation: &Incarnation) -> hob_hot::Result<()> {
        let key = self.keys.node(&id(incarnation));
        let mut facts = cmd("HSET");
        facts.arg(&key).arg("version").arg(env!("CARGO_PKG_VERSION")).arg("roles").arg(self.roles.join(" "));
        facts.arg("started_at").arg(self.started_at.0).arg("beat_at").arg(now().0);
        let expiry =
            cmd("PEXPIRE").arg(&key).arg(u64::try_from(Keys::NODE_TTL_MAX.as_millis()).unwrap_or(0)).clone();
        for answer in self.house.hot.batch(&[facts.into(), expiry.into()]).await {
            answer?;
        }
        Ok(())
    }
}

/// The keys of the group, which outlive the borrow that the members want.
struct GroupKeys {
    live: hob_schema::Key,
    info: hob_schema::Key,
    dead: hob_schema::Key,
}

impl GroupKeys {
    fn new(keys: &Keys) -> Self {
        let shard = keys.space().shards().next().unwrap_or_default();
        Self { live: keys.nodes(shard), info: keys.node_names(shard), dead: keys.dead_nodes(shard) }
    }

    fn members(&self) -> MemberKeys<'_> {
        MemberKeys { live: self.live.as_bytes(), info: self.info.as_bytes(), dead: self.dead.as_bytes() }
    }
}

fn id(incarnation: &Incarnation) -> keys::Incarnation {
    keys::Incarnation::new(incarnation.as_str()).expect("32 hexadecimal digits are an id")
}

fn now() -> UnixMs {
    UnixMs(jiff::Timestamp::now().as_millisecond())
}
