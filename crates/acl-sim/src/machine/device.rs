//! A device: its budgets, its health, and who holds it.
//!
//! Always holds: what is taken from a budget is given back once; a lost or aborted device says so with one
//! code until it is reset. Refuses to know: streams and memory blocks, which point here.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::codes;
use super::context::Context;
use super::refusal::{Answer, Refusal};
use super::table::lock;
use crate::settings::Settings;

/// Entries of the list of bad memory ranges, as the ABI bounds it.
pub const BAD_RANGES_MAX: usize = 128;
/// Notifies of a device.
const NOTIFIES: u64 = 8192;
/// Resets after which a lost device comes back: this one stands for never.
pub const NEVER: u32 = u32::MAX;

/// Something a device has a fixed amount of.
#[derive(Debug)]
pub struct Budget {
    limit: AtomicU64,
    used: AtomicU64,
}

impl Budget {
    /// A budget of `limit`.
    pub fn new(limit: u64) -> Self {
        Self { limit: AtomicU64::new(limit), used: AtomicU64::new(0) }
    }

    /// Takes `amount`, or nothing.
    pub fn take(&self, amount: u64) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(amount).filter(|sum| *sum <= limit)
        });
        taken.is_ok()
    }

    /// Gives back what was taken.
    pub fn give(&self, amount: u64) {
        let _ = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| Some(used.saturating_sub(amount)));
    }

    /// What is in use.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// All there is.
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// What is left.
    pub fn left(&self) -> u64 {
        self.limit().saturating_sub(self.used())
    }

    /// Changes the limit; what is in use stays in use.
    pub fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
    }
}

/// Who holds the device in this process.
#[derive(Default)]
pub struct Holders {
    /// `SetDevice` calls that were not undone.
    pub references: u32,
    /// The context they share.
    pub primary: Option<Arc<Context>>,
}

/// One simulated device.
pub struct Device {
    /// The id this process uses.
    pub id: i32,
    /// The id of the machine.
    pub physical: i32,
    /// Device memory in bytes.
    pub memory: Budget,
    /// Hardware streams.
    pub streams: Budget,
    /// Events.
    pub events: Budget,
    /// Notifies.
    pub notifies: Budget,
    /// References and the default context.
    pub holders: Mutex<Holders>,
    /// Tasks that were put on its streams and have not ended.
    pub pending: AtomicU64,
    /// Bad memory ranges (address, bytes).
    pub bad_ranges: Mutex<Vec<(usize, usize)>>,
    /// The last code a task ended with.
    pub last_fault: AtomicI32,
    /// Set by `aclrtDeviceTaskAbort` until the device is restarted.
    pub aborted: AtomicBool,
    /// Core limits: cube, vector.
    pub core_limits: [AtomicU32; 2],
    /// Peer devices that were enabled, a bit each.
    pub peers: AtomicU64,
    /// Saturation mode of float arithmetic.
    pub saturation: AtomicI32,
    lost: AtomicI32,
    resets_left: AtomicU32,
}

/// Cube and vector cores of the chip that is simulated.
pub const CORES: [u32; 2] = [20, 40];

impl Device {
    /// A healthy device nobody holds.
    pub fn new(id: i32, physical: i32, settings: &Settings) -> Self {
        Self {
            id,
            physical,
            memory: Budget::new(settings.memory),
            streams: Budget::new(settings.streams),
            events: Budget::new(settings.events),
            notifies: Budget::new(NOTIFIES),
            holders: Mutex::default(),
            pending: AtomicU64::new(0),
            bad_ranges: Mutex::default(),
            last_fault: AtomicI32::new(0),
            aborted: AtomicBool::new(false),
            core_limits: CORES.map(AtomicU32::new),
            peers: AtomicU64::new(0),
            saturation: AtomicI32::new(1),
            lost: AtomicI32::new(0),
            resets_left: AtomicU32::new(0),
        }
    }

    /// Refuses when the device is lost.
    pub fn usable(&self) -> Answer {
        match self.lost.load(Ordering::Relaxed) {
            0 => Ok(()),
            code => {
                Refusal::answer(code, format!("device {} is lost; reset it or restart the process", self.id))
            }
        }
    }

    /// Refuses new work on a lost or aborted device.
    pub fn takes_work(&self) -> Answer {
        self.usable()?;
        if self.aborted.load(Ordering::Relaxed) {
            let detail =
                format!("the tasks of device {} were aborted; reset the device or repair the error", self.id);
            return Refusal::answer(codes::DEVICE_TASK_ABORT, detail);
        }
        Ok(())
    }

    /// Loses the device: every call gives `code` until it was reset `resets` times.
    pub fn lose(&self, code: i32, resets: u32) {
        self.resets_left.store(resets, Ordering::Relaxed);
        self.lost.store(code, Ordering::Relaxed);
    }

    /// The code of a lost device.
    pub fn lost_code(&self) -> i32 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Notes how a task failed, and what that means for the whole device.
    pub fn note_fault(&self, code: i32, range: Option<(usize, usize)>) {
        self.last_fault.store(code, Ordering::Relaxed);
        match code {
            codes::LOST_HEARTBEAT | codes::SOCKET_CLOSE => self.lose(codes::DRV_INTERNAL, 1),
            codes::DEVICE_MEM_ERROR | codes::HBM_ECC_ERROR => {
                let mut ranges = lock(&self.bad_ranges);
                if let Some(range) = range
                    && ranges.len() < BAD_RANGES_MAX
                {
                    ranges.push(range);
                }
            }
            _ => {}
        }
    }

    /// Work is taken again after an abort.
    pub fn restart(&self) {
        self.aborted.store(false, Ordering::Relaxed);
        self.last_fault.store(0, Ordering::Relaxed);
        lock(&self.bad_ranges).clear();
    }

    /// A reset: one step towards health for a lost device, and everything else forgotten.
    pub fn reset(&self) {
        self.restart();
        self.peers.store(0, Ordering::Relaxed);
        for (limit, all) in self.core_limits.iter().zip(CORES) {
            limit.store(all, Ordering::Relaxed);
        }
        if self.lost_code() == 0 {
            return;
        }
        let left = self.resets_left.load(Ordering::Relaxed);
        if left == NEVER {
            return;
        }
        self.resets_left.store(left.saturating_sub(1), Ordering::Relaxed);
        if left <= 1 {
            self.lost.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device() -> Device {
        Device::new(0, 0, &Settings::read(|_| None))
    }

    #[test]
    fn a_budget_gives_only_what_it_has() {
        let budget = Budget::new(10);
        assert!(budget.take(7));
        assert!(!budget.take(4));
        assert!(budget.take(3));
        budget.give(10);
        assert_eq!(budget.left(), 10);
        budget.set_limit(1);
        assert!(!budget.take(2));
        assert!(!budget.take(u64::MAX));
    }

    #[test]
    fn a_lost_device_returns_after_its_resets() {
        let device = device();
        device.lose(507_899, 2);
        assert!(device.usable().is_err());
        device.reset();
        assert!(device.usable().is_err());
        device.reset();
        assert!(device.usable().is_ok());
        device.lose(507_899, NEVER);
        for _ in 0..5 {
            device.reset();
        }
        assert!(device.usable().is_err());
    }

    #[test]
    fn a_memory_error_keeps_its_range() {
        let device = device();
        device.note_fault(codes::DEVICE_MEM_ERROR, Some((0x1000, 64)));
        assert_eq!(*lock(&device.bad_ranges), [(0x1000, 64)]);
        device.restart();
        assert!(lock(&device.bad_ranges).is_empty());
    }
}
