"""Gangs onto nodes: whole or not at all, never over what a node has, close together."""
