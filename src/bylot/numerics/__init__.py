"""Compiled numerics: arrays in, arrays out, input trusted; checking is left to the callers."""
