//! A JSON Lines file.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use hob_database::private_file;

use crate::error::{Error, Result};
use crate::plan::output_path::{OutputPath, with_suffix};
use crate::run::RunId;

/// How many names are tried for a file.
const MAX_ATTEMPTS: u32 = 100;

/// A locked file.
#[derive(Debug)]
pub(crate) struct JsonLinesFile {
    path: PathBuf,
    file: Arc<Mutex<File>>,
}

impl JsonLinesFile {
    /// Opens an existing file.
    pub(crate) async fn open(path: &Path) -> Result<Self> {
        let path = path.to_owned();
        blocking(path.clone(), move || {
            let file =
                private_file::options().read(true).write(true).create(true).truncate(false).open(&path)?;
            lock(&file)?;
            Ok(Self { path, file: Arc::new(Mutex::new(file)) })
        })
        .await
    }

    /// Creates the file of a run. Returns its path relative to the folder. A file with content is never reused; an empty
    /// one is, since a process may have crashed right after creating it.
    pub(crate) async fn create(folder: &Path, plan: &OutputPath, run: &RunId) -> Result<(Self, PathBuf)> {
        let (folder, plan, run) = (folder.to_owned(), plan.clone(), run.clone());
        blocking(folder.join(plan.file(&run, 1)), move || {
            for attempt in 1..=MAX_ATTEMPTS {
                let name = plan.file(&run, attempt);
                let path = folder.join(&name);
                if let Some(parent) = path.parent() {
                    private_file::create_folder(parent)?;
                }
                let mut options = private_file::options();
                let file = options.read(true).write(true).create(true).truncate(false).open(&path)?;
                if file.metadata()?.len() == 0 && lock(&file).is_ok() {
                    sync_folder(&path)?;
                    return Ok((Self { path, file: Arc::new(Mutex::new(file)) }, name));
                }
            }
            Err(io::Error::new(
                ErrorKind::AlreadyExists,
                "all file names for this run are taken; remove old files",
            ))
        })
        .await
    }

    /// Truncates the file to the committed length, appends, and syncs. Returns the new length.
    pub(crate) async fn append(&self, length: u64, lines: &[&str]) -> Result<u64> {
        let mut text = String::with_capacity(lines.iter().map(|line| line.len() + 1).sum());
        for line in lines {
            text.push_str(line);
            text.push('\n');
        }
        let file = Arc::clone(&self.file);
        blocking(self.path.clone(), move || {
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            let existing = file.metadata()?.len();
            if existing < length {
                let reason =
                    format!("the file has {existing} bytes, but {length} were written; was it replaced?");
                return Err(io::Error::other(reason));
            }
            if existing > length {
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

/// Points a link to a file in the same folder, atomically. A regular file with the name of the link is preserved under
/// another name.
pub(crate) async fn link(link: &Path, file: &Path) -> Result<()> {
    let (link, file) = (link.to_owned(), file.to_owned());
    blocking(link.clone(), move || {
        let target = Path::new(file.file_name().unwrap_or_default());
        match fs::symlink_metadata(&link) {
            Ok(existing) if existing.is_symlink() && fs::read_link(&link)? == target => return Ok(()),
            Ok(existing) if existing.is_file() => preserve_existing(&link)?,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(link.file_name().unwrap_or_default());
        hidden.push(format!(".{:016x}", rand::random::<u64>()));
        let hidden = link.with_file_name(hidden);
        std::os::unix::fs::symlink(target, &hidden)?;
        if let Err(error) = fs::rename(&hidden, &link) {
            let _ = fs::remove_file(&hidden);
            return Err(error);
        }
        sync_folder(&link)
    })
    .await
}

fn preserve_existing(path: &Path) -> io::Result<()> {
    for attempt in 1..=MAX_ATTEMPTS {
        let word = if attempt < 2 { "earlier".to_owned() } else { format!("earlier~{attempt}") };
        match fs::hard_link(path, with_suffix(path, &word)) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            done => return done,
        }
    }
    Err(io::Error::new(ErrorKind::AlreadyExists, "a file has the name of the link; move it"))
}

fn lock(file: &File) -> io::Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(io::Error::other("another process has locked the file")),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Syncs the folder, so that a new name survives a power failure.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

async fn blocking<T: Send + 'static>(
    path: PathBuf,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)));
    done.map_err(|source| Error::File { what: path.display().to_string(), source })
}
