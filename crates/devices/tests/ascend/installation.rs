//! What an installation lacks is named.

use updraft_devices::ascend::{Chip, Compute, Library, LibraryError, OpenError, SearchPath, facts};

use super::children::{Child, in_child};
use super::models::{self, Kind};
use super::support::{NAMES, device, folder, library, open, options, simulated};
use updraft_devices::Device;

#[test]
fn facts_tell_the_chip_and_its_memory() {
    let facts = facts(library(), 0).unwrap();
    assert_eq!(facts.chip, Chip::from_soc(&facts.soc));
    assert!(
        facts.devices >= 1 && facts.memory_total >= facts.memory_free && facts.memory_free.0 > 0,
        "{facts:?}"
    );
}

#[test]
fn without_cann_the_error_says_what_was_tried_and_what_to_do() {
    let empty = folder("empty", &[]);
    let error = Library::load(&SearchPath::only(&empty)).unwrap_err();
    let message = error.to_string();
    for part in ["runtime", "libascendcl.so", "set_env.sh"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_library_that_is_no_library_is_named() {
    let broken = folder("broken", &[]);
    std::fs::write(broken.join("lib64/libascendcl.so"), "text").unwrap();
    let error = Library::load(&SearchPath::only(&broken)).unwrap_err();
    assert!(
        matches!(&error, LibraryError::Open { tried, .. } if tried[0].contains("lib64/libascendcl.so")),
        "{error}"
    );
}

#[test]
fn every_missing_function_is_named() {
    // Some library that is surely no CANN, under CANN's name.
    let other = folder("other", &NAMES[1..]);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let libc =
        maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(|path| path.contains("libc.so"));
    std::os::unix::fs::symlink(libc.unwrap(), other.join("lib64/libascendcl.so")).unwrap();
    let error = Library::load(&SearchPath::only(&other)).unwrap_err();
    let LibraryError::Symbols { missing, .. } = &error else { panic!("{error}") };
    assert!(missing.contains(&"aclInit") && missing.contains(&"aclmdlRICaptureBegin"), "{error}");
    assert!(!missing.contains(&"aclCreateTensor"), "{error}");
}

#[test]
fn libraries_split_by_domain_are_found() {
    let split =
        folder("split", &["libacl_rt.so", "libnnopbase.so", "libopapi_nn.so", "libopapi_transformer.so"]);
    let library = Library::load(&SearchPath::only(&split)).unwrap();
    assert!(library.has_operator("aclnnMm"));
    assert!(!library.has_operator("aclnnNoSuchOperator"));
    assert!(simulated().exists());
}

#[test]
fn options_that_no_device_can_meet_are_refused_with_the_reason() {
    let (program, tensors) = (models::program(Kind::LLAMA), models::tensors(Kind::LLAMA));
    let mut options = options();
    options.block_size = updraft_core::Tokens(24);
    let error = open(&program, &tensors, &options).unwrap_err();
    assert!(error.to_string().contains("multiple of 16"), "{error}");
}

#[test]
fn a_damaged_or_missing_tensor_is_named() {
    let program = models::program(Kind::LLAMA);
    let mut tensors = models::tensors(Kind::LLAMA);
    let (_, _, bytes) = tensors.tensors.get_mut("1.down").unwrap();
    let end = bytes.len();
    bytes[end - 4..].copy_from_slice(&[0xff; 4]);
    let error = open(&program, &tensors, &options()).unwrap_err();
    assert!(error.to_string().contains("\"1.down\"") && error.to_string().contains("damaged"), "{error}");
    tensors.tensors.remove("1.down");
    let error = open(&program, &tensors, &options()).unwrap_err();
    assert!(error.to_string().contains("lacks the tensor \"1.down\""), "{error}");
}

#[test]
fn a_device_that_is_not_there_is_a_fault() {
    let (program, tensors) = (models::program(Kind::LLAMA), models::tensors(Kind::LLAMA));
    let mut options = options();
    options.ordinal = 77;
    let error = open(&program, &tensors, &options).unwrap_err();
    assert!(error.to_string().contains("107001"), "{error}");
}

#[test]
fn an_old_chip_is_told_what_it_lacks() {
    let child = Child::new("installation::child_on_a_310p").set("ACL_SIM_SOC", "Ascend310P3");
    in_child(child);
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_on_a_310p() {
    let (program, tensors) = (models::program(Kind::LLAMA), models::tensors(Kind::LLAMA));
    let mut options = options();
    let error = open(&program, &tensors, &options).unwrap_err();
    assert!(matches!(error, OpenError::Compute { chip: Chip::P310P, .. }), "{error}");
    options.compute = Compute::F16;
    let error = open(&program, &tensors, &options).unwrap_err();
    assert!(
        matches!(&error, OpenError::MissingOperator(missing) if missing.wanted.contains("since CANN")),
        "{error}"
    );
}

#[test]
fn a_device_that_captures_every_kind_of_graph_has_no_limit() {
    let device = device(Kind::LLAMA);
    assert_eq!((device.graph_limit(), device.properties().graph_kinds.len()), (None, 3));
    let budget = device.properties().graph_budget;
    assert!(budget.bytes.0 > 0 && budget.streams > 0, "{budget:?}");
}
