//! `MONITOR`: commands as its clients see them.

use hob_commands::Command;

use crate::command::Args;
use crate::engine::Core;

impl Core {
    /// Shows a command of the client at `address`, or of a script (`lua`).
    pub(crate) fn send_to_monitors(&self, address: &str, command: &Command, args: Args<'_>) {
        let words = args.iter().enumerate().map(|(at, word)| {
            let first_secret = match command.name {
                "auth" => 1,
                "hello" => 3,
                _ => usize::MAX,
            };
            let secret = at >= first_secret;
            if secret { "\"(redacted)\"".to_owned() } else { quoted(word) }
        });
        let words: Vec<String> = words.collect();
        let (seconds, micros) = (self.now_us / 1_000_000, self.now_us % 1_000_000);
        let line = format!("{seconds}.{micros:06} [0 {address}] {}", words.join(" "));
        self.hub.send_to_monitors(&line.into());
    }
}

fn quoted(word: &[u8]) -> String {
    let escaped: String = word.escape_ascii().map(char::from).collect();
    format!("\"{}\"", escaped.replace("\\'", "'"))
}
