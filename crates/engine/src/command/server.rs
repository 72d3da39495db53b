//! Commands for the server and the connection.

use hob_commands::{ServerCommand, key_slot};

use super::{Args, Handler};
use crate::blocked::timeout_ms;
use crate::dispatch::CommandContext;
use crate::engine::Core;
use crate::number::{int, read_int};
use crate::reply::{CommandResult, Failure, Reply};
use crate::session::{Protocol, Session};

use super::clients::{self, set_name};
use super::config;
use super::info::info;
use super::introspection;

/// The version of Redis whose behaviour this store follows.
pub(crate) const REDIS_VERSION: &str = "7.0.15";
/// The same version as one number: a byte each for major, minor and patch.
pub(crate) const REDIS_VERSION_NUM: i64 = 0x07_00_0f;

pub(super) fn handler(id: ServerCommand) -> Handler {
    match id {
        ServerCommand::Ping => Handler::Data(ping),
        ServerCommand::Echo => Handler::Data(|_, args| Ok(Reply::bulk(args[1]))),
        ServerCommand::Hello => Handler::Session(hello),
        ServerCommand::Auth => Handler::Session(auth),
        ServerCommand::Select => Handler::Data(select),
        ServerCommand::Reset => Handler::Session(reset),
        ServerCommand::Quit => Handler::Session(quit),
        ServerCommand::ClientId => Handler::Session(clients::id),
        ServerCommand::ClientGetName => Handler::Session(clients::getname),
        ServerCommand::ClientSetName => Handler::Session(|context, args| set_name(context, args[2])),
        ServerCommand::ClientSetInfo => Handler::Session(clients::setinfo),
        ServerCommand::ClientInfo => Handler::Session(clients::info),
        ServerCommand::ClientList => Handler::Session(clients::list),
        ServerCommand::ClientKill => Handler::Session(clients::kill),
        ServerCommand::ClientUnblock => Handler::Data(clients::unblock),
        ServerCommand::ClientNoEvict => Handler::Session(clients::no_evict),
        ServerCommand::ConfigGet => Handler::Data(config::get),
        ServerCommand::ConfigSet => Handler::Data(config::set),
        ServerCommand::ConfigResetStat => Handler::Data(config::resetstat),
        ServerCommand::Command => Handler::Data(introspection::command),
        ServerCommand::Info => Handler::Data(info),
        ServerCommand::Time => Handler::Data(time),
        ServerCommand::Wait => Handler::Data(wait),
        ServerCommand::Monitor => Handler::Session(monitor),
        ServerCommand::ClusterKeySlot => Handler::Data(|_, args| Ok(Reply::Int(key_slot(args[2]).into()))),
        ServerCommand::HttpPost | ServerCommand::HttpHost => Handler::Session(drop_http),
    }
}

fn drop_http(context: &mut CommandContext<'_>, _: Args<'_>) -> CommandResult {
    tracing::warn!("client sent HTTP to the Redis port, connection closed");
    context.session.closing = true;
    Ok(Reply::Nothing)
}

fn ping(_: &mut Core, args: Args<'_>) -> CommandResult {
    match args {
        [_] => Ok(Reply::Simple("PONG".into())),
        [_, text] => Ok(Reply::bulk(text)),
        _ => Err(Failure::arity("ping")),
    }
}

/// Compares in constant time.
fn same_secret(given: &[u8], expected: &[u8]) -> bool {
    let digest = |bytes: &[u8]| sha1_smol::Sha1::from(bytes).digest().bytes();
    let (given, expected) = (digest(given), digest(expected));
    given.iter().zip(expected).fold(0, |diff, (a, b)| diff | (a ^ b)) == 0
}

fn authenticate(context: &mut CommandContext<'_>, user: &[u8], password: &[u8]) -> CommandResult<()> {
    let core = context.core();
    let expected = core.settings.password.as_deref();
    let throttle = context.session.throttle.as_ref().filter(|_| expected.is_some());
    if throttle.is_some_and(|(throttle, client)| throttle.blocked_for(*client).is_some()) {
        return Err(Failure::new("ERR too many wrong credentials from this address, try again later"));
    }
    let matches = expected.is_none_or(|expected| same_secret(password, expected.as_bytes()));
    if user != b"default" || !matches {
        if let Some((throttle, client)) = throttle {
            throttle.record_failure(*client, password);
        }
        return Err(Failure::new("WRONGPASS invalid username-password pair or user is disabled."));
    }
    context.session.set_authenticated(true, &core);
    Ok(())
}

fn auth(context: &mut CommandContext<'_>, args: Args<'_>) -> CommandResult {
    match args {
        [_, password] => {
            if context.core().settings.password.is_none() {
                return Err(Failure::new(
                    "ERR AUTH <password> called without any password configured for the default user. Are \
                     you sure your configuration is correct?",
                ));
            }
            authenticate(context, b"default", password)?;
        }
        [_, user, password] => authenticate(context, user, password)?,
        _ => return Err(Failure::SYNTAX),
    }
    Ok(Reply::OK)
}

fn hello(context: &mut CommandContext<'_>, args: Args<'_>) -> CommandResult {
    let protocol = args.get(1).map(|version| hello_protocol(version)).transpose()?;
    let mut rest = args.get(2..).unwrap_or_default();
    let mut name = None;
    while let Some((word, values)) = rest.split_first() {
        rest = match (word.to_ascii_lowercase().as_slice(), values) {
            (b"auth", [user, password, rest @ ..]) => {
                authenticate(context, user, password)?;
                rest
            }
            (b"setname", [value, rest @ ..]) => {
                name = Some(*value);
                rest
            }
            _ => {
                let word = super::printable(word, 128);
                return Err(format!("ERR Syntax error in HELLO option '{word}'").into());
            }
        };
    }
    if !context.session.authenticated {
        return Err(Failure::new(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> \
             AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol \
             version at the same time",
        ));
    }
    if let Some(name) = name {
        set_name(context, name)?;
    }
    let protocol = protocol.unwrap_or(context.session.protocol);
    context.session.protocol = protocol;
    context.update_client(|client| client.protocol = protocol);
    Ok(greeting(context.session))
}

fn hello_protocol(version: &[u8]) -> CommandResult<Protocol> {
    let version = read_int(version);
    let version = version.ok_or(Failure::new("ERR Protocol version is not an integer or out of range"))?;
    match version {
        2 => Ok(Protocol::Resp2),
        3 => Ok(Protocol::Resp3),
        _ => Err(Failure::new("NOPROTO unsupported protocol version")),
    }
}

fn greeting(session: &Session) -> Reply {
    let protocol = if session.protocol == Protocol::Resp2 { 2 } else { 3 };
    let facts = [
        ("server", Reply::bulk("redis")),
        ("version", Reply::bulk(REDIS_VERSION)),
        ("proto", Reply::Int(protocol)),
        ("id", Reply::Int(session.id.cast_signed())),
        ("mode", Reply::bulk("standalone")),
        ("role", Reply::bulk("master")),
        ("modules", Reply::Array(vec![])),
    ];
    Reply::Map(facts.map(|(name, value)| (Reply::bulk(name), value)).into())
}

fn select(_: &mut Core, args: Args<'_>) -> CommandResult {
    match int(args[1])? {
        0 => Ok(Reply::OK),
        _ => Err(Failure::new("ERR DB index is out of range")),
    }
}

fn reset(context: &mut CommandContext<'_>, _: Args<'_>) -> CommandResult {
    let mut core = context.core();
    context.session.reset(&mut core);
    context.session.protocol = Protocol::Resp2;
    let open = core.settings.password.is_none();
    context.session.set_authenticated(open, &core);
    Ok(Reply::Simple("RESET".into()))
}

fn quit(context: &mut CommandContext<'_>, _: Args<'_>) -> CommandResult {
    context.session.closing = true;
    Ok(Reply::OK)
}

fn time(core: &mut Core, _: Args<'_>) -> CommandResult {
    let (seconds, micros) = (core.now_us / 1_000_000, core.now_us % 1_000_000);
    Ok(Reply::bulks([seconds.to_string(), micros.to_string()]))
}

/// The engine has no replicas: it replies 0 at once, without waiting for the timeout.
fn wait(core: &mut Core, args: Args<'_>) -> CommandResult {
    int(args[1])?;
    timeout_ms(core, args[2])?;
    Ok(Reply::Int(0))
}

fn monitor(context: &mut CommandContext<'_>, _: Args<'_>) -> CommandResult {
    let sender = context.session.sender.clone();
    let sender = sender.ok_or(Failure::new("ERR this connection cannot monitor"))?;
    let id = context.session.id;
    context.core().hub.add_monitor(id, sender);
    Ok(Reply::OK)
}
