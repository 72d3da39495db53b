//! A file of JSON Lines.

use std::fs::{File, TryLockError};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Result};

/// A file that nobody else writes to.
#[derive(Debug)]
pub(crate) struct Lines {
    path: PathBuf,
    file: Arc<Mutex<File>>,
}

impl Lines {
    pub(crate) async fn open(path: &Path) -> Result<Self> {
        let path = path.to_owned();
        blocking(path.clone(), move || {
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder)?;
            }
            let file = File::options().read(true).write(true).create(true).truncate(false).open(&path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(std::io::Error::other("another process writes it"));
                }
                Err(TryLockError::Error(error)) => return Err(error),
            }
            Ok(Self { path, file: Arc::new(Mutex::new(file)) })
        })
        .await
    }

    /// Cuts the file to what was committed, appends, and waits until it is on the disk. Answers with the new length.
    pub(crate) async fn append(&self, length: u64, lines: &[&str]) -> Result<u64> {
        let mut text = String::with_capacity(lines.iter().map(|line| line.len() + 1).sum());
        for line in lines {
            text.push_str(line);
            text.push('\n');
        }
        let file = Arc::clone(&self.file);
        blocking(self.path.clone(), move || {
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            let there = file.metadata()?.len();
            if there < length {
                let reason =
                    format!("{there} bytes are there, but {length} were written: was the file replaced?");
                return Err(std::io::Error::other(reason));
            }
            if there > length {
                file.set_len(length)?;
            }
            file.seek(SeekFrom::Start(length))?;
            file.write_all(text.as_bytes())?;
            file.sync_data()?;
            Ok(length + text.len() as u64)
        })
        .await
    }
}

async fn blocking<T: Send + 'static>(
    path: PathBuf,
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T> {
    let done =
        tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(std::io::Error::other(error)));
    done.map_err(|source| Error::File { what: path.display().to_string(), source })
}
