"""The faults: one file each, found by `lossdoctor.core.fault.faults`."""
