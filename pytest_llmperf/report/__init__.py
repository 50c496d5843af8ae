"""The record of a run and the pages made of it; nothing here measures or decides."""
