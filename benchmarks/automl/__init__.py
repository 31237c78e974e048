"""One statement against boosted trees and nets that others train, table by table, in the same seconds."""
