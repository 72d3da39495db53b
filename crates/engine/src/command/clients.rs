//! `CLIENT`: the connections of the listener.

use std::fmt::Write;

use super::{Args, printable};
use crate::dispatch::CommandContext;
use crate::engine::Core;
use crate::number::{int, read_int};
use crate::reply::{CommandResult, Failure, Reply};
use crate::session::{Client, Protocol};

pub(super) fn id(context: &mut CommandContext<'_>, _: Args<'_>) -> CommandResult {
    Ok(Reply::Int(context.session.id.cast_signed()))
}

pub(super) fn getname(context: &mut CommandContext<'_>, _: Args<'_>) -> CommandResult {
    let core = context.core();
    let client = core.clients.connected.get(&context.session.id);
    Ok(match client {
        Some(client) if !client.name.is_empty() => Reply::bulk(&client.name),
        _ => Reply::Null,
    })
}

pub(super) fn set_name(context: &mut CommandContext<'_>, name: &[u8]) -> CommandResult {
    let name = plain(name)
        .ok_or(Failure::new("ERR Client names cannot contain spaces, newlines or special characters."))?;
    context.update_client(|client| client.name = name);
    Ok(Reply::OK)
}

pub(super) fn setinfo(context: &mut CommandContext<'_>, args: Args<'_>) -> CommandResult {
    let option = args[2].to_ascii_lowercase();
    let value = || {
        let name = String::from_utf8_lossy(&option);
        let refused = format!("ERR {name} cannot contain spaces, newlines or special characters.");
        plain(args[3]).ok_or(Failure::from(refused))
    };
    match option.as_slice() {
        b"lib-name" => {
            let name = value()?;
            context.update_client(|client| client.library_name = name);
        }
        b"lib-ver" => {
            let version = value()?;
            context.update_client(|client| client.library_version = version);
        }
        _ => return Err(format!("ERR Unrecognized option '{}'", printable(args[2], 128)).into()),
    }
    Ok(Reply::OK)
}

/// Text that fits in a line of `CLIENT LIST`.
fn plain(text: &[u8]) -> Option<String> {
    let fits = text.iter().all(|byte| (b'!'..=b'~').contains(byte));
    fits.then(|| String::from_utf8_lossy(text).into_owned())
}

/// No client is ever evicted, so this only sets the flag that `CLIENT LIST` shows.
pub(super) fn no_evict(context: &mut CommandContext<'_>, args: Args<'_>) -> CommandResult {
    let protected = match args[2].to_ascii_lowercase().as_slice() {
        b"on" => true,
        b"off" => false,
        _ => return Err(Failure::SYNTAX),
    };
    context.update_client(|client| client.no_evict = protected);
    Ok(Reply::OK)
}

pub(super) fn info(context: &mut CommandContext<'_>, _: Args<'_>) -> CommandResult {
    let core = context.core();
    let client = core.clients.connected.get(&context.session.id);
    let line = client.map(|client| client_line(context.session.id, client, &core));
    Ok(Reply::Text(line.unwrap_or_default()))
}

pub(super) fn list(context: &mut CommandContext<'_>, args: Args<'_>) -> CommandResult {
    let core = context.core();
    let mut lines = String::new();
    match &args[2..] {
        [word, ids @ ..] if word.eq_ignore_ascii_case(b"id") && !ids.is_empty() => {
            for id in ids {
                let id = read_int(id).ok_or(Failure::new("ERR Invalid client ID"))?;
                let id = u64::try_from(id).unwrap_or(0);
                if let Some(client) = core.clients.connected.get(&id) {
                    lines += &client_line(id, client, &core);
                }
            }
        }
        options => {
            let wanted = match options {
                [] => None,
                [word, name] if word.eq_ignore_ascii_case(b"type") => Some(ClientType::parse(name)?),
                _ => return Err(Failure::SYNTAX),
            };
            let mut clients: Vec<_> = core.clients.connected.iter().collect();
            clients.sort_unstable_by_key(|(id, _)| **id);
            for (id, client) in clients {
                if wanted.is_none_or(|wanted| wanted == ClientType::of(client)) {
                    lines += &client_line(*id, client, &core);
                }
            }
        }
    }
    Ok(Reply::Text(lines))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ClientType {
    Normal,
    Subscribed,
    /// Types that do not exist here: replicas and masters.
    Absent,
}

impl ClientType {
    fn parse(word: &[u8]) -> CommandResult<ClientType> {
        match word.to_ascii_lowercase().as_slice() {
            b"normal" => Ok(ClientType::Normal),
            b"pubsub" => Ok(ClientType::Subscribed),
            b"master" | b"replica" | b"slave" => Ok(ClientType::Absent),
            _ => Err(format!("ERR Unknown client type '{}'", printable(word, 128)).into()),
        }
    }

    fn of(client: &Client) -> ClientType {
        if client.is_subscribed() { ClientType::Subscribed } else { ClientType::Normal }
    }
}

/// Which clients `CLIENT KILL` ends. A client must match every option.
#[derive(Default)]
struct KillFilter<'a> {
    id: Option<u64>,
    client_type: Option<ClientType>,
    address: Option<&'a [u8]>,
    local_address: Option<&'a [u8]>,
    skipped: Option<u64>,
}

impl<'a> KillFilter<'a> {
    fn parse(options: Args<'a>, own_id: u64) -> CommandResult<KillFilter<'a>> {
        let mut filter = KillFilter { skipped: Some(own_id), ..KillFilter::default() };
        for pair in options.chunks(2) {
            let [word, value] = pair else {
                return Err(Failure::SYNTAX);
            };
            match word.to_ascii_lowercase().as_slice() {
                b"id" => {
                    let id = read_int(value).and_then(|id| u64::try_from(id).ok()).filter(|id| *id > 0);
                    filter.id = Some(id.ok_or(Failure::new("ERR client-id should be greater than 0"))?);
                }
                b"type" => filter.client_type = Some(ClientType::parse(value)?),
                b"addr" => filter.address = Some(value),
                b"laddr" => filter.local_address = Some(value),
                b"user" if *value == b"default" => {}
                b"user" => return Err(format!("ERR No such user '{}'", printable(value, 128)).into()),
                b"skipme" if value.eq_ignore_ascii_case(b"yes") => filter.skipped = Some(own_id),
                b"skipme" if value.eq_ignore_ascii_case(b"no") => filter.skipped = None,
                _ => return Err(Failure::SYNTAX),
            }
        }
        Ok(filter)
    }

    fn matches(&self, id: u64, client: &Client) -> bool {
        self.id.is_none_or(|wanted| wanted == id)
            && self.client_type.is_none_or(|wanted| wanted == ClientType::of(client))
            && self.address.is_none_or(|address| client.address.as_bytes() == address)
            && self.local_address.is_none_or(|address| client.local_address.as_bytes() == address)
            && self.skipped != Some(id)
    }
}

pub(super) fn kill(context: &mut CommandContext<'_>, args: Args<'_>) -> CommandResult {
    let own_id = context.session.id;
    // The older form has one address, and may end the caller's own connection.
    let only_address = if let [_, _, address] = args { Some(*address) } else { None };
    let filter = match only_address {
        Some(address) => KillFilter { address: Some(address), ..KillFilter::default() },
        None => KillFilter::parse(&args[2..], own_id)?,
    };
    let core = context.core();
    let mut killed = 0;
    let mut closes_own = false;
    for (id, client) in core.clients.connected.iter().filter(|(id, client)| filter.matches(**id, client)) {
        // The caller gets its reply first.
        if *id == own_id {
            closes_own = true;
        } else {
            client.kill.notify_one();
        }
        killed += 1;
    }
    drop(core);
    context.session.closing |= closes_own;
    match only_address {
        Some(_) if killed == 0 => Err(Failure::new("ERR No such client")),
        Some(_) => Ok(Reply::OK),
        None => Ok(Reply::Int(killed)),
    }
}

pub(super) fn unblock(core: &mut Core, args: Args<'_>) -> CommandResult {
    let reply = match &args[3..] {
        [] => Reply::NullArray,
        [word] if word.eq_ignore_ascii_case(b"timeout") => Reply::NullArray,
        [word] if word.eq_ignore_ascii_case(b"error") => {
            Reply::Error("UNBLOCKED client unblocked via CLIENT UNBLOCK".into())
        }
        [_] => return Err(Failure::new("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")),
        _ => {
            let name = printable(args[1], 128);
            return Err(format!(
                "ERR unknown subcommand or wrong number of arguments for '{name}'. Try CLIENT HELP."
            )
            .into());
        }
    };
    let client = int(args[2])?;
    Ok(Reply::flag(u64::try_from(client).is_ok_and(|client| core.unblock_client(client, reply))))
}

impl CommandContext<'_> {
    /// Changes what `CLIENT LIST` shows about this connection.
    pub(crate) fn update_client(&mut self, update: impl FnOnce(&mut Client)) {
        if let Some(client) = self.core().clients.connected.get_mut(&self.session.id) {
            update(client);
        }
    }
}

/// One line of `CLIENT LIST`, with every field of Redis 7. Buffers are not counted for each client, so their sizes are 0.
fn client_line(id: u64, client: &Client, core: &Core) -> String {
    let seconds = |since_us: u64| core.now_us.saturating_sub(since_us) / 1_000_000;
    let mut line = format!(
        "id={id} addr={} laddr={} fd=-1 name={} age={} idle={} flags={} db=0",
        client.address,
        client.local_address,
        client.name,
        seconds(client.since_us),
        seconds(client.active_us),
        client_flags(id, client, core),
    );
    let queued = client.queued.map_or(-1, |queued| queued.commands.cast_signed());
    let multi_mem = client.queued.map_or(0, |queued| queued.bytes);
    let resp = if client.protocol == Protocol::Resp2 { 2 } else { 3 };
    let _ = writeln!(
        line,
        " sub={} psub={} ssub=0 multi={queued} qbuf=0 qbuf-free=0 argv-mem=0 multi-mem={multi_mem} rbs=0 rbp=0 obl=0 \
         oll=0 omem=0 tot-mem={multi_mem} events=r cmd={} user=default redir=-1 resp={resp} lib-name={} lib-ver={}",
        client.channels, client.patterns, client.last_command, client.library_name, client.library_version,
    );
    line
}

fn client_flags(id: u64, client: &Client, core: &Core) -> String {
    let flags = [
        ('O', core.hub.is_monitor(id)),
        ('P', client.is_subscribed()),
        ('x', client.queued.is_some()),
        ('b', core.blocked.is_blocked(id)),
        ('U', client.local_address.starts_with('/')),
        ('e', client.no_evict),
    ];
    let set: String = flags.iter().filter(|(_, set)| *set).map(|(flag, _)| flag).collect();
    if set.is_empty() { "N".to_owned() } else { set }
}
