//! Versions, names and abilities of the installation.

use std::ffi::{CString, c_char};
use std::sync::OnceLock;

use super::{call, invalid, put, put_text, text};
use crate::machine::machine;
use crate::settings::settings;

/// Version of the runtime's interface, as the open runtime 9.1 tells it.
const INTERFACE: (i32, i32, i32) = (1, 17, 0);
/// Bytes of a version string.
const VERSION_ROOM: usize = 128;
/// Packages that can be asked for.
const PACKAGES: [&str; 8] = ["CANN", "runtime", "compiler", "hccl", "toolkit", "opp", "opp_kernel", "driver"];
/// Abilities: INF and NAN, BF16, just-in-time compilation.
const ABILITIES: [i32; 3] = [0, 1, 2];

/// Tells the version of the runtime's interface.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetVersion(major: *mut i32, minor: *mut i32, patch: *mut i32) -> i32 {
    call(|| {
        put(major, INTERFACE.0)?;
        put(minor, INTERFACE.1)?;
        put(patch, INTERFACE.2)
    })
}

/// The version of a package, in parts.
#[repr(C)]
pub struct CannVersion {
    version: [u8; 128],
    major: [u8; 64],
    minor: [u8; 64],
    release: [u8; 64],
    patch: [u8; 64],
    reserved: [u8; 128],
}

fn filled<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    for (slot, byte) in bytes.iter_mut().zip(text.bytes().take(N - 1)) {
        *slot = byte;
    }
    bytes
}

/// Tells the version of a package in parts.
#[unsafe(no_mangle)]
pub extern "C" fn aclsysGetCANNVersion(package: i32, out: *mut CannVersion) -> i32 {
    call(|| {
        if !(0..PACKAGES.len() as i32).contains(&package) {
            return invalid(format!("{package} is no package"));
        }
        let version = &settings().version;
        let mut parts = version.split('.');
        let mut next = || parts.next().unwrap_or("");
        let told = CannVersion {
            version: filled(version),
            major: filled(next()),
            minor: filled(next()),
            release: filled(next()),
            patch: filled(next()),
            reserved: [0; 128],
        };
        put(out, told)
    })
}

fn known(package: *mut c_char) -> Result<(), crate::machine::refusal::Refusal> {
    let name = text(package)?;
    if PACKAGES.iter().any(|known| known.eq_ignore_ascii_case(name)) || name.starts_with("ops") {
        Ok(())
    } else {
        invalid(format!("package {name} is not installed"))
    }
}

/// Tells the version of a package.
#[unsafe(no_mangle)]
pub extern "C" fn aclsysGetVersionStr(package: *mut c_char, out: *mut c_char) -> i32 {
    call(|| {
        known(package)?;
        let version: String = settings().version.chars().take(VERSION_ROOM - 1).collect();
        put_text(out, VERSION_ROOM, &version)
    })
}

/// Tells it as a number.
#[unsafe(no_mangle)]
pub extern "C" fn aclsysGetVersionNum(package: *mut c_char, out: *mut i32) -> i32 {
    call(|| {
        known(package)?;
        put(out, settings().version_number())
    })
}

/// Tells the name of the chip; null without a device.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetSocName() -> *const c_char {
    static NAME: OnceLock<CString> = OnceLock::new();
    if machine().devices().is_empty() {
        return std::ptr::null();
    }
    NAME.get_or_init(|| CString::new(settings().soc.clone()).unwrap_or_default()).as_ptr()
}

/// Tells whether programs built for another chip run here: those of the same family do.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtCheckArchCompatibility(soc: *const c_char, compatible: *mut i32) -> i32 {
    call(|| {
        let family =
            |name: &str| name.to_ascii_lowercase().chars().take("ascend910b".len()).collect::<String>();
        put(compatible, i32::from(family(text(soc)?) == family(&settings().soc)))
    })
}

/// Lists the abilities of this installation.
#[unsafe(no_mangle)]
pub extern "C" fn aclGetCannAttributeList(list: *mut *const i32, count: *mut usize) -> i32 {
    call(|| {
        put(list, ABILITIES.as_ptr())?;
        put(count, ABILITIES.len())
    })
}

/// Tells whether an ability is there.
#[unsafe(no_mangle)]
pub extern "C" fn aclGetCannAttribute(ability: i32, value: *mut i32) -> i32 {
    call(|| {
        if ABILITIES.contains(&ability) {
            put(value, 1)
        } else {
            invalid(format!("{ability} is no attribute"))
        }
    })
}
