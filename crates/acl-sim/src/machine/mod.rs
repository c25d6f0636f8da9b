//! The simulated machine: everything behind the ABI, without a C type in it.
//!
//! Always holds: programs hold handles, and each handle is looked up; no call reaches an object that was
//! destroyed. Refuses to know: how calls come in (`abi`) and what operators compute (`launch`).

pub mod capture;
pub mod codes;
pub mod context;
pub mod control;
pub mod copy;
pub mod device;
pub mod event;
pub mod exception;
pub mod faults;
pub mod graph;
pub mod memory;
pub mod process;
pub mod refusal;
pub mod reset;
pub mod stream;
pub mod submit;
pub mod table;
pub mod task;
pub mod update;
pub mod virtual_memory;
pub mod worker;

use std::sync::{Arc, OnceLock};

use crate::settings::settings;
use context::Context;
use device::Device;
use event::Event;
use graph::{Graph, TaskGroup};
use refusal::{Answer, Refusal};
use stream::Stream;
use table::Table;
use virtual_memory::Physical;

/// All devices and all living objects.
pub struct Machine {
    devices: Vec<Arc<Device>>,
    /// Contexts.
    pub contexts: Table<Context>,
    /// Streams.
    pub streams: Table<Stream>,
    /// Events.
    pub events: Table<Event>,
    /// Notifies.
    pub notifies: Table<Event>,
    /// Graphs.
    pub graphs: Table<Graph>,
    /// Task groups of graphs.
    pub groups: Table<TaskGroup>,
    /// Physical memory.
    pub physical: Table<Physical>,
}

/// The machine of this process.
pub fn machine() -> &'static Machine {
    static MACHINE: OnceLock<Machine> = OnceLock::new();
    static ONCE: std::sync::Once = std::sync::Once::new();
    let machine = MACHINE.get_or_init(|| {
        let settings = settings();
        let devices = settings.devices.iter().enumerate();
        let devices = devices.map(|(id, physical)| Arc::new(Device::new(id as i32, *physical, settings)));
        Machine {
            devices: devices.collect(),
            contexts: Table::default(),
            streams: Table::default(),
            events: Table::default(),
            notifies: Table::default(),
            graphs: Table::default(),
            groups: Table::default(),
            physical: Table::default(),
        }
    });
    ONCE.call_once(|| {
        if let Some(script) = &settings().faults {
            faults::load_at_start(machine, script);
        }
        if let Some(path) = &settings().control {
            control::start(path);
        }
    });
    machine
}

impl Machine {
    /// All devices.
    pub fn devices(&self) -> &[Arc<Device>] {
        &self.devices
    }

    /// A device by its id.
    pub fn device(&self, id: i32) -> Answer<Arc<Device>> {
        usize::try_from(id).ok().and_then(|index| self.devices.get(index)).cloned().ok_or_else(|| {
            let detail =
                format!("device {id} is out of range or hidden; {} devices are visible", self.devices.len());
            Refusal::new(codes::INVALID_DEVICE, detail)
        })
    }
}
