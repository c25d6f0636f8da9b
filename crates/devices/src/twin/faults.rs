//! Troubles of a twin, on demand.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use updraft_core::recovery::{DeviceFault, Moment, RecoveryClass};

use crate::DeviceError;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TwinTrouble {
    /// The work ends in a fault, and there are no results.
    Fault(TwinFault),
    /// The work is not even begun: handing it over fails.
    Refused(TwinFault),
    /// The step takes this long.
    Hang(Duration),
    /// The logits are wrong, and nobody says so.
    WrongResult,
}

/// A fault of a twin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TwinFault {
    /// Code that it reports.
    pub code: i32,
    /// Class of it.
    pub class: RecoveryClass,
}

impl TwinFault {
    pub(super) fn timeout() -> Self {
        Self { code: 46, class: RecoveryClass::WaitMore }
    }

    pub(super) fn on(self, device: &str) -> Box<DeviceFault> {
        Box::new(DeviceFault {
            device: device.to_owned(),
            code: self.code,
            name: Cow::Borrowed("TWIN_TROUBLE"),
            meaning: Cow::Borrowed("trouble on request"),
            class: self.class,
            operator: None,
            text: String::new(),
        })
    }
}

/// A switch that twins look at; clones share it.
#[derive(Clone, Debug, Default)]
pub struct TwinFaults(Arc<Switch>);

#[derive(Debug, Default)]
struct Switch {
    rules: Mutex<Vec<Rule>>,
    /// Numbers of the twins that are open.
    open: Mutex<Vec<u32>>,
    is_tight: AtomicBool,
}

/// The memory of an open twin.
#[derive(Debug)]
pub(super) struct TwinMemory(TwinFaults, u32);

impl Drop for TwinMemory {
    fn drop(&mut self) {
        let mut open = self.0.0.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = open.iter().position(|ordinal| *ordinal == self.1) {
            open.swap_remove(place);
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Rule {
    moment: Moment,
    trouble: TwinTrouble,
    skip: u32,
    times: u32,
}

impl TwinFaults {
    /// At the moment `moment`, after it went well `skip` times, there is trouble `times` times.
    pub fn arm(&self, moment: Moment, skip: u32, times: u32, trouble: TwinTrouble) {
        self.rules().push(Rule { moment, trouble, skip, times });
    }

    /// From now on the memory of a device is too small for two: a twin cannot be opened while another one of
    /// its number is open.
    pub fn make_memory_tight(&self) {
        self.0.is_tight.store(true, Ordering::Relaxed);
    }

    /// Takes the memory of a twin.
    pub(super) fn take_memory(&self, device: &str, ordinal: u32) -> Result<TwinMemory, DeviceError> {
        let mut open = self.0.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.contains(&ordinal) && self.0.is_tight.load(Ordering::Relaxed) {
            return Err(TwinFault { code: 18, class: RecoveryClass::Memory }.on(device).into());
        }
        open.push(ordinal);
        Ok(TwinMemory(self.clone(), ordinal))
    }

    /// Whether trouble is still to come.
    #[must_use]
    pub fn is_armed(&self) -> bool {
        !self.rules().is_empty()
    }

    /// No more trouble.
    pub fn disarm(&self) {
        self.rules().clear();
    }

    /// The trouble of this moment.
    pub(super) fn take(&self, moment: Moment) -> Option<TwinTrouble> {
        let mut rules = self.rules();
        let mut found = None;
        for rule in rules.iter_mut().filter(|rule| rule.moment == moment) {
            if rule.skip > 0 {
                rule.skip -= 1;
            } else if found.is_none() {
                rule.times -= 1;
                found = Some(rule.trouble);
            }
        }
        rules.retain(|rule| rule.times > 0);
        found
    }

    /// The trouble of a moment that can only fail.
    pub(super) fn raise(&self, device: &str, moment: Moment) -> Result<(), DeviceError> {
        match self.take(moment) {
            Some(TwinTrouble::Fault(fault) | TwinTrouble::Refused(fault)) => Err(fault.on(device).into()),
            Some(TwinTrouble::Hang(time)) => {
                std::thread::sleep(time);
                Ok(())
            }
            Some(TwinTrouble::WrongResult) | None => Ok(()),
        }
    }

    fn rules(&self) -> std::sync::MutexGuard<'_, Vec<Rule>> {
        self.0.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
