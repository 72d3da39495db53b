//! A mail server that accepts and records every message.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

pub(crate) struct MailServer {
    pub(crate) address: SocketAddr,
    emails: Arc<Mutex<Vec<Email>>>,
    task: JoinHandle<()>,
}

/// How the connection is encrypted.
#[derive(Clone)]
pub(crate) enum Security {
    None,
    StartTls(TlsAcceptor),
    Implicit(TlsAcceptor),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Email {
    pub(crate) recipients: Vec<String>,
    pub(crate) text: String,
    /// Whether it arrived over TLS.
    pub(crate) secured: bool,
}

impl Drop for MailServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl MailServer {
    pub(crate) async fn start(security: Security) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let emails: Arc<Mutex<Vec<Email>>> = Arc::default();
        let inbox = Inbox(Arc::clone(&emails));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(inbox.clone().serve(stream, security.clone()));
            }
        });
        Self { address, emails, task }
    }

    pub(crate) fn emails(&self) -> Vec<Email> {
        self.emails.lock().unwrap().clone()
    }
}

#[derive(Clone)]
struct Inbox(Arc<Mutex<Vec<Email>>>);

/// Why a conversation ended.
enum Ended {
    Closed,
    WantsTls,
}

impl Inbox {
    async fn serve(self, mut stream: TcpStream, security: Security) -> Option<()> {
        const GREETING: &[u8] = b"220 mail.example\r\n";
        const OFFER: [&str; 2] = ["250-mail.example", "250 AUTH PLAIN"];
        let secured = Email { secured: true, ..Email::default() };
        match security {
            Security::None => {
                stream.write_all(GREETING).await.ok()?;
                self.converse(&mut stream, &OFFER, Email::default()).await?;
            }
            Security::StartTls(acceptor) => {
                stream.write_all(GREETING).await.ok()?;
                let offer = ["250-mail.example", "250 STARTTLS"];
                if let Ended::WantsTls = self.converse(&mut stream, &offer, Email::default()).await? {
                    let mut stream = acceptor.accept(stream).await.ok()?;
                    self.converse(&mut stream, &OFFER, secured.clone()).await?;
                }
            }
            Security::Implicit(acceptor) => {
                let mut stream = acceptor.accept(stream).await.ok()?;
                stream.write_all(GREETING).await.ok()?;
                self.converse(&mut stream, &OFFER, secured.clone()).await?;
            }
        }
        Some(())
    }

    /// Enough of SMTP for one client.
    async fn converse(
        &self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
        offers: &[&str],
        blank: Email,
    ) -> Option<Ended> {
        let (reader, mut writer) = tokio::io::split(stream);
        let mut lines = BufReader::new(reader).lines();
        let mut email = blank.clone();
        while let Some(line) = lines.next_line().await.ok()? {
            let verb = line.split([' ', ':']).next().unwrap_or_default().to_ascii_uppercase();
            let reply = match verb.as_str() {
                "EHLO" | "HELO" => offers.join("\r\n"),
                "STARTTLS" => {
                    writer.write_all(b"220 go on\r\n").await.ok()?;
                    return Some(Ended::WantsTls);
                }
                "RCPT" => {
                    email.recipients.push(line);
                    "250 fine".to_owned()
                }
                "DATA" => {
                    writer.write_all(b"354 go on\r\n").await.ok()?;
                    while let Some(line) = lines.next_line().await.ok()?.filter(|line| line != ".") {
                        email.text.push_str(&line);
                        email.text.push('\n');
                    }
                    self.0.lock().unwrap().push(std::mem::replace(&mut email, blank.clone()));
                    "250 taken".to_owned()
                }
                "AUTH" => "235 welcome".to_owned(),
                "QUIT" => "221 bye".to_owned(),
                _ => "250 fine".to_owned(),
            };
            writer.write_all(format!("{reply}\r\n").as_bytes()).await.ok()?;
        }
        Some(Ended::Closed)
    }
}
