//! Scripts.

use hob_commands::ScriptCommand;

use super::options::is_flush_mode;
use super::{Args, Handler};
use crate::dispatch::CommandContext;
use crate::number::int;
use crate::reply::{CommandResult, Failure, Reply};
use crate::script::ScriptAccess;

pub(super) fn handler(id: ScriptCommand) -> Handler {
    match id {
        ScriptCommand::Eval => Handler::Session(|context, args| eval(context, args, ScriptAccess::ReadWrite)),
        ScriptCommand::EvalRo => {
            Handler::Session(|context, args| eval(context, args, ScriptAccess::ReadOnly))
        }
        ScriptCommand::EvalSha => {
            Handler::Session(|context, args| run(context, args[1], args, ScriptAccess::ReadWrite))
        }
        ScriptCommand::EvalShaRo => {
            Handler::Session(|context, args| run(context, args[1], args, ScriptAccess::ReadOnly))
        }
        ScriptCommand::Load => Handler::Session(load),
        ScriptCommand::Exists => Handler::Session(exists),
        ScriptCommand::Flush => Handler::Session(flush),
        ScriptCommand::Kill => Handler::Session(|context, _| context.watchdog.kill()),
    }
}

fn eval(context: &mut CommandContext<'_>, args: Args<'_>, access: ScriptAccess) -> CommandResult {
    split(args)?;
    let sha = context.scripts()?.load(args[1])?;
    run(context, &sha, args, access)
}

fn run(context: &mut CommandContext<'_>, sha: &[u8], args: Args<'_>, access: ScriptAccess) -> CommandResult {
    let (keys, argv) = split(args)?;
    let origin = context.session.origin;
    context.scripts()?.run(sha, keys, argv, origin, access)
}

/// A script's KEYS and ARGV.
fn split<'a>(args: Args<'a>) -> CommandResult<(Args<'a>, Args<'a>)> {
    let count = int(args[2])?;
    let Ok(count) = usize::try_from(count) else {
        return Err(Failure::new("ERR Number of keys can't be negative"));
    };
    if count > args.len() - 3 {
        return Err(Failure::new("ERR Number of keys can't be greater than number of args"));
    }
    Ok(args[3..].split_at(count))
}

fn load(context: &mut CommandContext<'_>, args: Args<'_>) -> CommandResult {
    Ok(Reply::bulk(context.scripts()?.load(args[2])?))
}

fn exists(context: &mut CommandContext<'_>, args: Args<'_>) -> CommandResult {
    let scripts = context.scripts()?;
    let exists = args[2..].iter().map(|sha| Reply::flag(scripts.exists(sha)));
    Ok(Reply::Array(exists.collect()))
}

fn flush(context: &mut CommandContext<'_>, args: Args<'_>) -> CommandResult {
    if args.len() > 3 || args.get(2).is_some_and(|word| !is_flush_mode(word)) {
        return Err(Failure::new("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
    }
    context.scripts()?.flush();
    Ok(Reply::OK)
}
