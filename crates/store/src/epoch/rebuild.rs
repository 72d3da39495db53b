//! Rebuilds a lost tag from the database. All nodes that detect the loss take part.
//!
//! 1. A node reads the epoch in the database, and then the marker. If the marker has that epoch, another node has
//!    rebuilt the tag. If the tag is being rebuilt in that epoch, this node helps. A marker from another history of the
//!    server counts as missing; before that is decided, the node reads the history again.
//! 2. Otherwise the node raises the epoch in the database. If several nodes try this, one succeeds. It writes the new
//!    epoch into the marker as `rebuilding`, once. From then on no script accepts the old epoch.
//! 3. The data is read from the database and written in batches. Every batch checks that the tag is still being rebuilt
//!    in this epoch, so a second loss, or a later epoch, refuses the rest.
//! 4. The marker gets its epoch last, under the same condition.
//!
//! If a node dies during the rebuild, another node finishes the epoch or replaces it with a later one. An epoch is
//! begun only once and never again after it was finished. Therefore data that was written before a loss cannot be
//! mistaken for data that was written after it.

use std::ops::RangeInclusive;
use std::time::Duration;

use hob_units::Backoff;
use tokio::time::sleep;

use super::{Epoch, MARKER, SERVER};
use crate::error::{Error, Result};
use crate::reply::Reply;
use crate::script::Script;
use crate::store::Store;

static BEGIN: Script = Script::with(&[SERVER], include_str!("rebuild/begin.lua"));
static FINISH: Script = Script::with(&[MARKER], include_str!("rebuild/finish.lua"));

/// How often other nodes or losses may interrupt a rebuild.
const MAX_ATTEMPTS: u32 = 8;
/// The delay after an interruption. The node that raised the epoch begins the rebuild in this time.
const PAUSE: Backoff =
    Backoff::exponential(Duration::from_millis(20), Duration::from_millis(500)).with_jitter(0.5..1.0);

/// The database side of a tag that can be rebuilt.
pub trait Rebuild: Sync {
    /// The service's error.
    type Error: From<Error>;

    /// The epochs in which the tag is valid: the epoch in the database. If the database has one epoch for many tags,
    /// every epoch from the one that this node knows up to the one in the database.
    fn valid_epochs(&self) -> impl Future<Output = Result<RangeInclusive<Epoch>, Self::Error>> + Send;

    /// Raises the epoch in the database above `lost`. `None` if it is already higher, because another node has raised
    /// it.
    fn raise_epoch(&self, lost: Epoch) -> impl Future<Output = Result<Option<Epoch>, Self::Error>> + Send;

    /// Reads the data from the database and writes it, in batches, with scripts that begin with
    ///
    /// ```lua
    /// local gone = superseded(KEYS[1], ARGV[1])
    /// if gone then return gone end
    /// ```
    ///
    /// Several nodes may do this at once. The data must include every write of earlier epochs that the database
    /// accepts: it is read after the epoch was raised. If writers check the epoch in their transactions, it is read in
    /// a transaction that checks the epoch too.
    fn restore(&self, epoch: Epoch) -> impl Future<Output = Result<Progress, Self::Error>> + Send;
}

/// The result of one batch, or of all batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Everything was written.
    Complete,
    /// The tag was lost again, has been rebuilt, or is in a later epoch.
    Superseded,
}

impl Progress {
    /// Reads the reply of a script of [`Rebuild::restore`]. The script answers with `word` unless it is superseded.
    pub fn read(reply: &Reply, word: &str) -> Result<Self> {
        match reply.word() {
            "superseded" => Ok(Self::Superseded),
            found if found == word => Ok(Self::Complete),
            _ => Err(reply.unexpected()),
        }
    }
}

/// The result of a rebuild.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// This node has rebuilt the tag in this epoch.
    Rebuilt(Epoch),
    /// Another node has rebuilt it in this epoch.
    Adopted(Epoch),
    /// The rebuild was interrupted too often. The next call on the tag finds the tag lost again.
    Interrupted,
}

/// Rebuilds a lost tag, helps another node to do so, or adopts the epoch of a tag that has been rebuilt. `remains` are
/// keys of the tag that must not outlive a lost epoch.
pub async fn rebuild<R: Rebuild, K: AsRef<[u8]>>(
    store: &Store,
    marker: K,
    remains: &[K],
    source: &R,
) -> Result<Recovery, R::Error> {
    let keys: Vec<Vec<u8>> =
        std::iter::once(&marker).chain(remains).map(|key| key.as_ref().to_vec()).collect();
    let mut pause = PAUSE.clone();
    while pause.attempts() < MAX_ATTEMPTS {
        // This is read before the marker. If the marker does not have a valid epoch, that epoch was lost, or has not
        // begun yet.
        let valid = source.valid_epochs().await?;
        store.read_history(&keys[0]).await?;
        let marker = Marker::read(store, &keys[..1], None).await?;
        let usable = |epoch: &Epoch| marker.origin == Origin::Current && valid.contains(epoch);
        if let Some(epoch) = marker.epoch.filter(usable) {
            return Ok(Recovery::Adopted(epoch));
        }
        let newest = marker.epoch.into_iter().chain(marker.rebuilding).fold(*valid.start(), Epoch::max);
        let attempt = match marker.rebuilding.filter(usable) {
            Some(epoch) => Some(epoch),
            // Another node has raised the epoch in between. If not, the database is a backup from an earlier epoch.
            None if newest > *valid.end() && pause.attempts() == 0 => None,
            None => begin(store, &keys, source, newest, *valid.end()).await?,
        };
        if let Some(epoch) = attempt
            && source.restore(epoch).await? == Progress::Complete
            && finish(store, &keys[..1], epoch).await? == Progress::Complete
        {
            return Ok(Recovery::Rebuilt(epoch));
        }
        sleep(pause.next()).await;
    }
    Ok(Recovery::Interrupted)
}

/// Raises the epoch and begins a rebuild in it. Returns `None` if another node was faster: it has raised the epoch, or
/// has begun or finished a rebuild in a later epoch or in one of the valid epochs after `lost`, up to `last`.
async fn begin<R: Rebuild>(
    store: &Store,
    keys: &[Vec<u8>],
    source: &R,
    lost: Epoch,
    last: Epoch,
) -> Result<Option<Epoch>, R::Error> {
    let Some(epoch) = source.raise_epoch(lost).await? else { return Ok(None) };
    let limit = if last > lost { Epoch(lost.get() + 1) } else { epoch };
    let marker = Marker::read(store, keys, Some((epoch, limit))).await?;
    Ok(marker.rebuilding.filter(|rebuilding| *rebuilding == epoch))
}

async fn finish(store: &Store, marker: &[Vec<u8>], epoch: Epoch) -> Result<Progress> {
    let reply: Reply = store.run(FINISH.on(marker).arg(epoch.get())).await?;
    Progress::read(&reply, "finished")
}

struct Marker {
    epoch: Option<Epoch>,
    rebuilding: Option<Epoch>,
    origin: Origin,
}

/// Which history of the server wrote a marker.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Current,
    Rewound,
}

impl Marker {
    /// Reads the marker. With `new`, which is a new epoch and a limit, first begins a rebuild in the new epoch, unless
    /// the marker has the limit or a later epoch.
    async fn read(store: &Store, keys: &[Vec<u8>], new: Option<(Epoch, Epoch)>) -> Result<Self> {
        let [new, limit] =
            new.map(|(new, limit)| [new, limit].map(|epoch| epoch.to_string())).unwrap_or_default();
        let mut reply: Reply = store.run(BEGIN.on(keys).arg(new).arg(limit)).await?;
        let mut epoch = || Ok::<_, Error>(Epoch::parse(&reply.next::<String>()?));
        let (epoch, rebuilding) = (epoch()?, epoch()?);
        let origin = if reply.next::<String>()? == "current" { Origin::Current } else { Origin::Rewound };
        Ok(Self { epoch, rebuilding, origin })
    }
}
