//! Memory that arithmetic works on: files mapped read-only, and aligned arrays that cost nothing until
//! touched.
//!
//! Nothing here knows what the bytes mean. A [`MappedFile`] promises that its bytes stay readable while it
//! lives; an [`AlignedVec`] that its storage starts on a 64-byte border and begins as zeros.

mod aligned;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

use memmap2::{Mmap, UncheckedAdvice};

pub use aligned::{AlignedVec, Plain};

/// A file mapped read-only.
///
/// The file must not shrink or change while it is mapped: as with every mapping, a reader would then see the
/// change or be ended by the system. Checkpoints are replaced by renaming, which is safe.
#[derive(Debug)]
pub struct MappedFile {
    /// Absent for an empty file, which cannot be mapped.
    map: Option<Mmap>,
}

impl MappedFile {
    /// Maps the whole file.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        if file.metadata()?.len() == 0 {
            return Ok(Self { map: None });
        }
        // SAFETY: the mapping is private and read-only, so this process cannot change the bytes behind the
        // shared slices that `bytes` hands out. That nobody else truncates the file is stated on the type.
        let map = unsafe { Mmap::map(&file) }?;
        Ok(Self { map: Some(map) })
    }

    /// The file's bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.map.as_deref().unwrap_or(&[])
    }

    /// Tells the system that the pages that lie wholly within this range of bytes are not needed for now;
    /// they come back from the file when read again. Only a hint: what cannot be done is left undone.
    pub fn release(&self, range: Range<usize>) {
        let Some(map) = &self.map else { return };
        let page = page_size();
        let first = range.start.next_multiple_of(page);
        // The last page of the file is released too, though the file rarely fills it.
        let end = if range.end >= map.len() { map.len() } else { range.end / page * page };
        if first >= end {
            return;
        }
        // SAFETY: the mapping is file-backed and never written, so dropping its pages loses nothing: a later
        // read through any slice loads the same bytes from the file again.
        let outcome = unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, first, end - first) };
        // A refusal only means that the pages stay, which is allowed.
        drop(outcome);
    }
}

fn page_size() -> usize {
    // SAFETY: sysconf reads a constant of the system and has no preconditions.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).ok().filter(|size| size.is_power_of_two()).unwrap_or(4096)
}
