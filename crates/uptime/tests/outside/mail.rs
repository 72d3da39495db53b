//! A mail server that takes everything, and remembers it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

pub(crate) struct MailServer {
    pub(crate) address: SocketAddr,
    letters: Arc<Mutex<Vec<Letter>>>,
    task: JoinHandle<()>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Letter {
    pub(crate) recipients: Vec<String>,
    pub(crate) text: String,
}

impl Drop for MailServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl MailServer {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let letters: Arc<Mutex<Vec<Letter>>> = Arc::default();
        let inbox = Arc::clone(&letters);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(receive(stream, Arc::clone(&inbox)));
            }
        });
        Self { address, letters, task }
    }

    pub(crate) fn letters(&self) -> Vec<Letter> {
        self.letters.lock().unwrap().clone()
    }
}

/// Just enough of SMTP for a client that has nothing to hide.
async fn receive(stream: TcpStream, inbox: Arc<Mutex<Vec<Letter>>>) -> Option<()> {
    let (reader, mut writer) = stream.into_split();
    let mut lines = BufReader::new(reader).lines();
    writer.write_all(b"220 mail.example\r\n").await.ok()?;
    let mut letter = Letter::default();
    while let Some(line) = lines.next_line().await.ok()? {
        let verb = line.split([' ', ':']).next().unwrap_or_default().to_ascii_uppercase();
        let reply = match verb.as_str() {
            "EHLO" | "HELO" => "250 mail.example",
            "RCPT" => {
                letter.recipients.push(line);
                "250 fine"
            }
            "DATA" => {
                writer.write_all(b"354 go on\r\n").await.ok()?;
                while let Some(line) = lines.next_line().await.ok()?.filter(|line| line != ".") {
                    letter.text.push_str(&line);
                    letter.text.push('\n');
                }
                inbox.lock().unwrap().push(std::mem::take(&mut letter));
                "250 taken"
            }
            "QUIT" => "221 bye",
            _ => "250 fine",
        };
        writer.write_all(format!("{reply}\r\n").as_bytes()).await.ok()?;
    }
    Some(())
}
