//! Which ends of lives cost a device its place, and which cost it nothing.

use std::borrow::Cow;

use updraft_core::recovery::DeviceFault;

use super::*;
use crate::executor::Trouble;

const START: (Millis, Millis) = (Millis(1), Millis(0));

fn worn_out() -> LifeEnd {
    LifeEnd { action: Action::RetireDevice, ..LifeEnd::of("worn out".to_owned(), false) }
}

fn crash() -> LifeEnd {
    LifeEnd { unsaid: Some(Unsaid::Crash), ..LifeEnd::of("it crashed".to_owned(), true) }
}

fn of_class(class: RecoveryClass, end: LifeEnd) -> LifeEnd {
    let fault = DeviceFault {
        device: "twin:2".to_owned(),
        code: 1,
        name: Cow::Borrowed("TWIN"),
        meaning: Cow::Borrowed("twin"),
        class,
        operator: None,
        text: String::new(),
    };
    let trouble = Trouble { fault, moment: Moment::Decode, action: end.action, age_micros: 0 };
    LifeEnd { troubles: vec![trouble], ..end }
}

fn retired(change: Option<Change>) -> Retired {
    match change {
        Some(Change::Retired(retired)) => retired,
        other => panic!("{other:?} is no retirement"),
    }
}

#[test]
fn spares_serve_in_turn_and_then_nobody() {
    let devices = Devices::new(&[2, 5], RecoveryPolicy::default());
    assert_eq!(devices.current().map(|device| device.ordinal), Some(2));
    assert_eq!(devices.life_ended(START, &LifeEnd::of("a mistake".to_owned(), true), |_| true), None);
    let first = retired(devices.life_ended(START, &worn_out(), |_| true));
    assert_eq!((first.ordinal, first.replaced_by), (2, Some(5)));
    let last = retired(devices.life_ended(START, &worn_out(), |_| true));
    assert_eq!((last.ordinal, last.replaced_by), (5, None));
    assert!(last.reason.contains("device 5") && last.reason.contains("worn out"), "{}", last.reason);
    assert!(devices.current().is_none());
    assert_eq!(devices.life_ended(START, &worn_out(), |_| true), None);
}

#[test]
fn silence_takes_no_device_out_of_service() {
    let silent = LifeEnd::silent("nothing was heard of it".to_owned(), true);
    let alone = Devices::new(&[0], RecoveryPolicy::default());
    for _ in 0..50 {
        assert_eq!(alone.life_ended(START, &silent, |_| true), None);
    }
    // Where there is a spare, both take turns.
    let devices = Devices::new(&[0, 1], RecoveryPolicy::default());
    let turns: Vec<_> = (0..50).filter_map(|_| devices.life_ended(START, &silent, |_| true)).collect();
    assert_eq!(turns[0], Change::SetAside { ordinal: 0, replaced_by: 1 });
    assert_eq!(turns[1], Change::SetAside { ordinal: 1, replaced_by: 0 });
    assert!(turns.iter().all(|change| matches!(change, Change::SetAside { .. })), "{turns:?}");
}

#[test]
fn a_spare_that_is_not_free_takes_nobodys_place() {
    let devices = Devices::new(&[0, 1], RecoveryPolicy::default());
    assert_eq!(devices.set_aside(|_| false), None);
    assert_eq!(devices.set_aside(|ordinal| ordinal == 1), Some((0, 1)));
    assert_eq!(devices.current().map(|device| device.ordinal), Some(1));
}

#[test]
fn crashes_cost_a_device_its_place_only_when_there_is_a_spare() {
    let devices = Devices::new(&[0, 1], RecoveryPolicy::default());
    let change = (0..10).find_map(|_| devices.life_ended(START, &crash(), |_| true));
    assert_eq!(retired(change).replaced_by, Some(1));
    for _ in 0..50 {
        assert_eq!(devices.life_ended(START, &crash(), |_| true), None);
    }
}

#[test]
fn crashes_once_in_a_while_cost_it_nothing() {
    let devices = Devices::new(&[0, 1], RecoveryPolicy::default());
    for day in 1..50_u64 {
        let began = day * 86_400_000;
        devices.life_began(Millis(began));
        let last_step = Millis(began + 3_600_000);
        assert_eq!(devices.life_ended((last_step, last_step), &crash(), |_| true), None);
    }
}

#[test]
fn what_it_has_been_through_waits_for_a_device_that_is_set_aside() {
    let devices = Devices::new(&[0, 1], RecoveryPolicy::default());
    let mut ledger = Ledger::default();
    ledger.decide_class(Millis(1), RecoveryClass::Device, Moment::Decode);
    let end = LifeEnd { ledger: Some(ledger.clone()), ..LifeEnd::of("a fault".to_owned(), false) };
    assert_eq!(devices.life_ended(START, &end, |_| true), None);
    devices.set_aside(|_| true);
    assert_eq!(devices.current().map(|device| device.ledger), Some(Ledger::default()));
    devices.set_aside(|_| true);
    assert_eq!(devices.current().map(|device| device.ledger), Some(ledger));
}

#[test]
fn what_never_came_up_ends_the_engine_when_its_configuration_is_at_fault() {
    let hopeless = of_class(RecoveryClass::Memory, LifeEnd { hopeless: true, ..worn_out() });
    let devices = Devices::new(&[2, 5], RecoveryPolicy::default());
    let Some(Change::FailedToOpen(reason)) = devices.life_ended(START, &hopeless, |_| true) else {
        panic!("it goes on")
    };
    assert!(reason.contains("worn out") && reason.contains("free memory"), "{reason}");
    devices.life_began(Millis(1));
    assert_eq!(retired(devices.life_ended(START, &hopeless, |_| true)).replaced_by, Some(5));
}

#[test]
fn a_fault_of_the_installation_spends_no_spare() {
    for class in [RecoveryClass::Environment, RecoveryClass::Unsupported] {
        let devices = Devices::new(&[2, 5], RecoveryPolicy::default());
        devices.life_began(Millis(1));
        let out = retired(devices.life_ended(START, &of_class(class, worn_out()), |_| true));
        assert_eq!((out.ordinal, out.replaced_by), (2, None));
        assert!(out.reason.contains("installation"), "{}", out.reason);
        assert!(devices.current().is_none());
    }
}
